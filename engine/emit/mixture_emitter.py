"""Emits mixtures of experts: the ops of kernels/matmul/moe.py over one layer's tensors, and their scratch.

Emits mixtures of experts: the ops of kernels/matmul/moe.py over one layer's tensors, by their names in GGUF.

The scratch of mixtures of experts: what their ops hand to each other, allocated once for all layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.emit.emitter import Emitter
from engine.emit.run_state import Capacity, RunState
from engine.families.mixture import Mixture
from engine.weights.load import Experts, Matrix, WeightLoader
from kernels.build.jit import Kernel, address
from kernels.matmul import gemv, moe
from kernels.matmul.activations import Activations
from kernels.matmul.moe_routing import ROUTE, SOFTMAX, Routing, route_kernel
from kernels.quant.quads import ROWS
from kernels.run.program import OP_BYTES


@dataclass(slots=True, kw_only=True)
class ExpertState:
    """Places are the pairs of a row and one of its experts, sorted by expert; there are rows * active of them."""

    routing: Routing
    packed: Activations  # of places: the input of gate and up, then that of down
    gate_up: NDArray[np.float32]  # [places, 2 * width], gate's values first
    down: NDArray[np.float32]  # [places, hidden]
    records: NDArray[np.uint8]  # [threads, OP_BYTES], as EXPERT_MATMUL asks for

    @classmethod
    def allocate(cls, mixture: Mixture, capacity: Capacity, hidden: int) -> "ExpertState":
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


def mixture_kernels(config: object, activations: str, tier: int) -> Sequence[Kernel]:
    """The kernels of mixtures beyond those of dense layers."""
    return (
        route_kernel(),
        moe.expert_pack_kernel(),
        moe.expert_matmul_kernel(),
        moe.expert_silu_kernel(),
        moe.combine_kernel(),
    )


class MixtureEmitter(Emitter):
    """An Emitter for families whose feed-forward layers are mixtures of one shape.

    A layer is `norm(..., output="normed")`, which packs the input for the router and keeps it for the experts, and then
    `experts`. A shared expert needs a RunState with `feed_forward` of its width.
    """

    def __init__(
        self, mixture: Mixture, *, weights: WeightLoader, state: RunState, capacity: Capacity, tier: int
    ) -> None:
        super().__init__(weights=weights, state=state, capacity=capacity, tier=tier)
        rows, hidden = state.hidden.shape
        self._mixture = mixture
        self._experts = ExpertState.allocate(mixture, capacity, hidden)
        state.keep.append(self._experts)
        widths = {"normed": hidden, "router": -(-mixture.experts // ROWS) * ROWS}
        if mixture.shared_width:
            widths |= {"shared": hidden, "shared_gate": ROWS}
        for name, width in widths.items():
            state.buffers[name] = np.zeros((rows, width), np.float32)

    def experts(self, name: str) -> None:
        """Add the mixture of layer `name` ("blk.3") to the residual stream.

        y = sum over the chosen e of weight_e * down_e(silu(gate_e n) * up_e n)  [+ sigmoid(w n) * shared(n)]
        """
        mixture = self._mixture
        if mixture.shared_width:
            self.matmul(f"{name}.ffn_gate_inp_shexp.weight", "shared_gate", 1, barrier=False)
        self.matmul(f"{name}.ffn_gate_inp.weight", "router", mixture.experts)
        self._emit_route()
        if mixture.shared_width:
            # Routing and packing leave threads idle when rows are few, so the shared expert goes on beside them.
            gate, up, down = (f"{name}.ffn_{part}_shexp.weight" for part in ("gate", "up", "down"))
            self.feed_forward(gate, up, down, mixture.shared_width, output="shared", barrier=False)
        self._emit_routed(name)
        self._emit_combine()

    def _emit_routed(self, name: str) -> None:
        """Compute what each place's expert gives."""
        scratch, width, hidden = self._experts, self._mixture.width, self._state.hidden.shape[1]
        gate, up = self._gate_and_up(name, hidden)
        down = self._load(f"{name}.ffn_down_exps.weight", hidden, width)
        self._emit_place_packing(
            moe.EXPERT_PACK,
            moe.expert_pack_kernel(),
            "pack places",
            hidden,
            source=self._buffer("normed"),
        )
        names = [f"experts {name}.ffn_{part}_exps.weight" for part in ("gate", "up", "down")]
        self._emit_experts(gate, names[0], scratch.gate_up[:, :width], barrier=False)
        self._emit_experts(up, names[1], scratch.gate_up[:, width:])
        self._emit_place_packing(
            moe.EXPERT_SILU,
            moe.expert_silu_kernel(),
            "silu places",
            width,
            gate=scratch.gate_up.ctypes.data,
            up=scratch.gate_up[:, width:].ctypes.data,
            stride=scratch.gate_up.shape[1],
        )
        self._emit_experts(down, names[2], scratch.down)

    def _gate_and_up(self, name: str, columns: int) -> tuple[Experts, Experts]:
        """Two tensors, or one with gate's outputs before those of up in each expert."""
        width, fused = self._mixture.width, f"{name}.ffn_gate_up_exps.weight"
        if self._weights.has(fused):
            both = self._load(fused, 2 * width, columns)
            return both.outputs(0, width), both.outputs(width, 2 * width)
        gate, up = (self._load(f"{name}.ffn_{part}_exps.weight", width, columns) for part in ("gate", "up"))
        return gate, up

    def _load(self, weight: str, outputs: int, columns: int) -> Experts:
        return self._weights.experts(weight, self._mixture.experts, self._mixture.active, outputs, columns)

    def _emit_route(self) -> None:
        """Route the rows; whatever follows up to the next barrier must not read the routing."""
        router, mixture = self._state.buffers["router"], self._mixture
        self.program.emit(
            ROUTE,
            address(route_kernel()),
            "route",
            barrier=not mixture.shared_width,
            logits=router.ctypes.data,
            logits_stride=router.shape[1],
            experts=mixture.experts,
            scoring=SOFTMAX,
            bias=0,
            renormalize=int(mixture.renormalize),
            scale=mixture.scale,
            crossover=self._capacity.crossover,
            rows=self._rows,
            routing=self._experts.routing.address,
        )

    def _emit_place_packing(self, dtype: np.dtype, kernel: Any, name: str, columns: int, **fields: float) -> None:
        """Emit an op that packs places for the matmuls that follow."""
        self._packed, self._columns = self._experts.packed, columns
        self._packing = self.program.emit(
            dtype,
            address(kernel),
            name,
            columns=columns,
            forms=0,
            packed=self._packed.address,
            routing=self._experts.routing.address,
            **fields,
        )

    def _emit_experts(self, experts: Experts, name: str, target: np.ndarray, *, barrier: bool = True) -> None:
        """Multiply the packed places by their experts' matrices into `target`, float32 [places, outputs]."""
        scratch, active = self._experts, self._mixture.active
        first = Matrix(experts.kind, experts.packed[0], experts.columns)
        outputs = len(first.packed) * ROWS
        self.program.emit(
            moe.EXPERT_MATMUL,
            address(moe.expert_matmul_kernel()),
            f"{name} {experts.kind.name} {active}/{len(experts.packed)} {outputs}x{experts.columns}",
            barrier=barrier,
            least_groups=1,
            most_groups=_groups_per_task(experts.packed, active, self._capacity.threads),
            rows=0,
            output=target.ctypes.data,
            add=0,
            expert_bytes=experts.packed.strides[0],
            records=scratch.records.ctypes.data,
            routing=scratch.routing.address,
            **self._matmul_fields(first, target.strides[0] // target.itemsize),
        )

    def _emit_combine(self) -> None:
        is_shared, hidden = self._mixture.shared_width > 0, self._state.hidden
        self.program.emit(
            moe.COMBINE,
            address(moe.combine_kernel()),
            "combine",
            source=self._experts.down.ctypes.data,
            shared=self._buffer("shared") if is_shared else 0,
            shared_gate=self._buffer("shared_gate") if is_shared else 0,
            shared_gate_stride=ROWS,
            columns=hidden.shape[1],
            output=hidden.ctypes.data,
            add=1,
            rows=self._rows,
            routing=self._experts.routing.address,
        )


def _groups_per_task(packed: np.ndarray, active: int, threads: int) -> int:
    """Cut an expert's groups of outputs evenly into tasks that fit a step of one row."""
    _, groups, blocks, packed_bytes = packed.shape
    expert_bytes = groups * blocks * packed_bytes
    parts = -(-expert_bytes // gemv.large_task_bytes(active * expert_bytes, threads))
    return int(-(-groups // parts))
