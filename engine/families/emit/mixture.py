"""Emits mixtures of experts: the ops of kernels/matmul/moe.py over one layer's tensors, and their scratch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from engine.families.emit.emitter import Emitter, Packed, norm
from engine.families.emit.matmul import GatedTensors, feed_forward, matmul, matmul_fields
from engine.families.emit.run_state import Capacity, Rows
from engine.weights.load import Experts, Matrix
from kernels.build.jit import Kernel
from kernels.matmul import gemv, moe
from kernels.matmul.activations import Activations
from kernels.matmul.moe_routing import ROUTE, SOFTMAX, Routing, route_kernel
from kernels.quant.quads import ROWS
from kernels.run.program import OP_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """The shape of a model's mixtures, which are all alike."""

    experts: int
    active: int  # experts that a row goes to
    width: int  # outputs of an expert's gate and up
    shared_width: int = 0  # of the expert that all rows go to; 0: there is none
    scoring: int = SOFTMAX  # how the router's logits become scores of experts: SOFTMAX or SIGMOID
    renormalize: bool = True  # a row's weights are divided by their sum
    scale: float = 1.0  # of the weights


@dataclass(slots=True, kw_only=True)
class ExpertState:
    """What the ops of a mixture hand to each other; allocated once for all layers.

    Places are the pairs of a row and one of its experts, sorted by expert; there are rows * active of them.
    """

    routing: Routing
    packed: Activations  # of places: the input of gate and up, then that of down
    gate_up: NDArray[np.float32]  # [places, 2 * width], gate's values first
    down: NDArray[np.float32]  # [places, hidden]
    records: NDArray[np.uint8]  # [threads, OP_BYTES], as EXPERT_MATMUL asks for

    @classmethod
    def allocate(cls, mixture: Mixture, capacity: Capacity, hidden: int) -> Self:
        """Make room for steps of the rows that there can be; pages that no step touches cost no memory."""
        rows = capacity.max_rows
        places = rows * mixture.active
        return cls(
            routing=Routing.allocate(rows, mixture.experts, mixture.active),
            packed=Activations.allocate(places, max(hidden, mixture.width), capacity.crossover),
            gate_up=np.zeros((places, 2 * mixture.width), np.float32),
            down=np.zeros((places, hidden), np.float32),
            records=np.zeros((capacity.threads, OP_BYTES), np.uint8),
        )


def mixture_kernels() -> Sequence[Kernel]:
    """The kernels of mixtures beyond those of dense layers."""
    return (
        route_kernel(),
        moe.expert_pack_kernel(),
        moe.expert_matmul_kernel(),
        moe.expert_silu_kernel(),
        moe.combine_kernel(),
    )


class MixtureLayers:
    """Emits the mixtures of one program. A shared expert needs a RunState with `feed_forward` of its width."""

    def __init__(self, emit: Emitter, mixture: Mixture) -> None:
        self._emit, self._mixture = emit, mixture
        state, hidden = emit.state, emit.stream.width
        self._scratch = ExpertState.allocate(mixture, emit.capacity, hidden)
        state.keep.append(self._scratch)
        self._normed = state.new_rows("normed", hidden)
        self._router = state.new_rows("router", mixture.experts)
        self._shared = state.new_rows("shared", hidden) if mixture.shared_width else None
        self._shared_gate = state.new_rows("shared_gate", 1) if mixture.shared_width else None

    def emit(self, name: str, norm_weight: str, epsilon: float) -> None:
        """Add the mixture of layer `name` ("blk.3") of n = rmsnorm(x) to the residual stream x.

        y = sum over the chosen e of weight_e * down_e(silu(gate_e n) * up_e n)  [+ sigmoid(w n) * shared(n)]
        """
        emit, mixture, shared, gate = self._emit, self._mixture, self._shared, self._shared_gate
        packed = norm(emit, emit.stream, norm_weight, epsilon, plain=self._normed)
        if gate is not None:
            matmul(emit, packed, f"{name}.ffn_gate_inp_shexp.weight", gate, barrier=False)
        matmul(emit, packed, f"{name}.ffn_gate_inp.weight", self._router)
        self._emit_route(f"{name}.exp_probs_b.bias")
        if shared is not None:
            # Routing and packing leave threads idle when rows are few, so the shared expert goes on beside them.
            tensors = GatedTensors.of(name, mixture.shared_width, "_shexp")
            feed_forward(emit, packed, tensors, shared, barrier=False)
        self._emit_routed(name)
        self._emit_combine()

    def _emit_route(self, bias: str) -> None:
        """Route the rows; whatever follows up to the next barrier must not read the routing."""
        router, mixture = self._router, self._mixture
        self._emit.op(
            ROUTE,
            route_kernel(),
            "route",
            barrier=not mixture.shared_width,
            logits=router.address,
            logits_stride=router.stride,
            experts=mixture.experts,
            scoring=mixture.scoring,
            bias=self._emit.vector_if_any(bias, mixture.experts),
            renormalize=int(mixture.renormalize),
            scale=mixture.scale,
            crossover=self._emit.capacity.crossover,
            rows=router.count,
            routing=self._scratch.routing.address,
        )

    def _emit_routed(self, name: str) -> None:
        """Compute what each place's expert gives."""
        scratch, width, hidden = self._scratch, self._mixture.width, self._emit.stream.width
        gate, up = self._gate_and_up(name, hidden)
        down = self._load(f"{name}.ffn_down_exps.weight", hidden, width)
        names = [f"experts {name}.ffn_{part}_exps.weight" for part in ("gate", "up", "down")]
        places = self._pack_places(
            moe.EXPERT_PACK, moe.expert_pack_kernel(), "pack places", hidden, source=self._normed.address
        )
        self._emit_experts(places, gate, names[0], scratch.gate_up[:, :width], barrier=False)
        self._emit_experts(places, up, names[1], scratch.gate_up[:, width:])
        places = self._pack_places(
            moe.EXPERT_SILU,
            moe.expert_silu_kernel(),
            "silu places",
            width,
            gate=scratch.gate_up.ctypes.data,
            up=scratch.gate_up[:, width:].ctypes.data,
            stride=scratch.gate_up.shape[1],
        )
        self._emit_experts(places, down, names[2], scratch.down)

    def _gate_and_up(self, name: str, columns: int) -> tuple[Experts, Experts]:
        """Two tensors, or one with gate's outputs before those of up in each expert."""
        width, fused = self._mixture.width, f"{name}.ffn_gate_up_exps.weight"
        if self._emit.has(fused):
            both = self._load(fused, 2 * width, columns)
            return both.outputs(0, width), both.outputs(width, 2 * width)
        gate, up = (self._load(f"{name}.ffn_{part}_exps.weight", width, columns) for part in ("gate", "up"))
        return gate, up

    def _load(self, weight: str, outputs: int, columns: int) -> Experts:
        return self._emit.weights.experts(weight, self._mixture.experts, self._mixture.active, outputs, columns)

    def _pack_places(self, dtype: np.dtype, kernel: Kernel, name: str, columns: int, **fields: float) -> Packed:
        """Emit an op that packs places for the matmuls of experts."""
        packed, routing = self._scratch.packed, self._scratch.routing.address
        return self._emit.packing(dtype, kernel, name, packed, columns, 0, routing=routing, **fields)

    def _emit_experts(
        self, places: Packed, experts: Experts, name: str, target: np.ndarray, *, barrier: bool = True
    ) -> None:
        """Multiply places by their experts' matrices into `target`, float32 [places, outputs]."""
        scratch, active = self._scratch, self._mixture.active
        first = Matrix(experts.kind, experts.packed[0], experts.columns)
        outputs = len(first.packed) * ROWS
        self._emit.op(
            moe.EXPERT_MATMUL,
            moe.expert_matmul_kernel(),
            f"{name} {experts.kind.name} {active}/{len(experts.packed)} {outputs}x{experts.columns}",
            barrier=barrier,
            least_groups=1,
            most_groups=_groups_per_task(experts.packed, active, self._emit.capacity.threads),
            rows=0,
            output=target.ctypes.data,
            add=0,
            expert_bytes=experts.packed.strides[0],
            records=scratch.records.ctypes.data,
            routing=scratch.routing.address,
            **matmul_fields(self._emit, places, first, target.strides[0] // target.itemsize),
        )

    def _emit_combine(self) -> None:
        stream, shared, gate = self._emit.stream, self._shared, self._shared_gate
        self._emit.op(
            moe.COMBINE,
            moe.combine_kernel(),
            "combine",
            source=self._scratch.down.ctypes.data,
            shared=_address(shared),
            shared_gate=_address(gate),
            shared_gate_stride=ROWS,
            columns=stream.width,
            output=stream.address,
            add=1,
            rows=stream.count,
            routing=self._scratch.routing.address,
        )


def _address(rows: Rows | None) -> int:
    return 0 if rows is None else rows.address


def _groups_per_task(packed: np.ndarray, active: int, threads: int) -> int:
    """Cut an expert's groups of outputs evenly into tasks that fit a step of one row."""
    _, groups, blocks, packed_bytes = packed.shape
    expert_bytes = groups * blocks * packed_bytes
    parts = -(-expert_bytes // gemv.large_task_bytes(active * expert_bytes, threads))
    return int(-(-groups // parts))
