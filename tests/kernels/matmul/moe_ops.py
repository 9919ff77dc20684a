"""Runs the routing op and a whole mixture of experts on NumPy arrays."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.build.jit import address
from kernels.matmul import moe
from kernels.matmul.activations import NEVER, Activations, form_of
from kernels.matmul.gemv import tile_functions
from kernels.matmul.moe_routing import ROUTE, SOFTMAX, Routing, route_kernel
from kernels.quant.weight_types import WEIGHT_TYPES
from kernels.run.program import OP_BYTES, Program
from kernels.simd.tiers import TIERS_BY_NAME
from tests.kernels.ops import Bytes, Float32, crossover_of, random_matrix, run_program


def pad(x: Float32, columns: int) -> Float32:
    """Append columns of 7 up to a multiple of `columns`."""
    return np.pad(x, ((0, 0), (0, -x.shape[1] % columns)), constant_values=7)


def emit_route(program: Program, routing: Routing, logits: Float32, rows: NDArray[np.int64], experts: int,
               **options: Any) -> None:  # fmt: skip
    bias = options.pop("bias", None)
    fields = {"scoring": SOFTMAX, "renormalize": 1, "scale": 1.0, "crossover": NEVER} | options
    program.emit(
        ROUTE,
        address(route_kernel()),
        logits=logits.ctypes.data,
        logits_stride=logits.shape[1],
        experts=experts,
        bias=0 if bias is None else bias.ctypes.data,
        rows=rows.ctypes.data,
        routing=routing.address,
        **fields,
    )


def route(logits: Float32, active: int, *, threads: int = 1, **options: Any) -> Routing:
    """Route rows of logits, [rows, experts]."""
    routing, rows = Routing.allocate(len(logits), logits.shape[1], active), np.array([len(logits)])
    program, padded = Program(), pad(logits, 16)
    emit_route(program, routing, padded, rows, logits.shape[1], **options)
    run_program(program.finish(), threads)
    return routing


@dataclass
class Layer:
    """Random experts of one weight type; matrices are uint8 [experts, outputs, row bytes] as in a file."""

    name: str
    experts: int
    active: int
    dim: int
    ff: int

    def __post_init__(self) -> None:
        self.gate, self.up = (self._matrices(self.ff, self.dim, seed) for seed in (1, 2))
        self.down = self._matrices(self.dim, self.ff, seed=3)
        self._packed = [self._pack(raw) for raw in (self.gate, self.up, self.down)]

    def _matrices(self, outputs: int, columns: int, seed: int) -> Bytes:
        return random_matrix(self.name, self.experts * outputs, columns, seed).reshape(self.experts, outputs, -1)

    def _pack(self, raw: Bytes) -> Bytes:
        return np.stack([WEIGHT_TYPES[self.name].pack(matrix) for matrix in raw])

    def run(
        self,
        x: Float32,
        logits: Float32,
        tier: str,
        *,
        threads: int = 1,
        residual: Float32 | None = None,
        shared: Float32 | None = None,
        shared_gate: Float32 | None = None,
        groups_per_task: int = 1,
        crossover: int | None = None,
        tiles: dict[str, int] | None = None,
    ) -> Float32:
        """The mixture of experts of rows x, [rows, dim], with router logits [rows, experts].

        tiles: the addresses of other tile functions than those of the type.
        """
        crossover = crossover_of(tier) if crossover is None else crossover
        rows, places = np.array([len(x)]), len(x) * self.active
        routing = Routing.allocate(len(x), self.experts, self.active)
        packed = Activations.allocate(places, max(self.dim, self.ff), crossover)
        common = {"routing": routing.address, "packed": packed.address}
        forms = form_of(WEIGHT_TYPES[self.name])
        gate, up, down = (np.full((places, n), np.nan, np.float32) for n in (self.ff, self.ff, self.dim))
        records = np.zeros((threads, OP_BYTES), np.uint8)
        y = np.full_like(x, np.nan) if residual is None else residual.copy()
        program, padded = Program(), pad(logits, 16)
        emit_route(program, routing, padded, rows, self.experts, crossover=crossover)
        program.emit(
            moe.EXPERT_PACK,
            address(moe.expert_pack_kernel()),
            source=x.ctypes.data,
            columns=self.dim,
            forms=forms,
            **common,
        )

        def matmul(weights: Bytes, columns: int, output: Float32, barrier: bool = True) -> None:
            program.emit(
                moe.EXPERT_MATMUL,
                address(moe.expert_matmul_kernel()),
                barrier=barrier,
                weights=weights.ctypes.data,
                groups=weights.shape[1],
                least_groups=1,
                most_groups=groups_per_task,
                blocks=weights.shape[2],
                columns=columns,
                rows=0,
                output=output.ctypes.data,
                output_stride=output.shape[1],
                add=0,
                expert_bytes=weights[0].nbytes,
                records=records.ctypes.data,
                **common,
                **(tiles or tile_functions(WEIGHT_TYPES[self.name], TIERS_BY_NAME[tier].number)),
            )

        matmul(self._packed[0], self.dim, gate, barrier=False)
        matmul(self._packed[1], self.dim, up)
        program.emit(
            moe.EXPERT_SILU,
            address(moe.expert_silu_kernel()),
            gate=gate.ctypes.data,
            up=up.ctypes.data,
            stride=self.ff,
            columns=self.ff,
            forms=forms,
            **common,
        )
        matmul(self._packed[2], self.ff, down)
        program.emit(
            moe.COMBINE,
            address(moe.combine_kernel()),
            source=down.ctypes.data,
            shared=0 if shared is None else shared.ctypes.data,
            shared_gate=0 if shared_gate is None else shared_gate.ctypes.data,
            shared_gate_stride=0 if shared_gate is None else shared_gate.shape[1],
            columns=self.dim,
            output=y.ctypes.data,
            add=int(residual is not None),
            rows=rows.ctypes.data,
            routing=routing.address,
        )
        run_program(program.finish(), threads)
        return y
