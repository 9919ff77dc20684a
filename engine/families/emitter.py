"""Emits the ops that families are made of; a family's builder then reads like its formulas."""

import math
from typing import Any

import numpy as np

from engine.families.run_state import Capacity, RunState
from engine.weights.load import Matrix, WeightLoader
from kernels import attention, gemv, rotary
from kernels.activation import SILU, silu_kernel
from kernels.activations import form_of
from kernels.jit import address
from kernels.norm import NORM, PACK, norm_kernel, pack_kernel
from kernels.program import Program
from kernels.tiles import MATMUL

# Packed weight bytes of one task: small enough to share a step evenly, and to stay in a core's cache over all rows.
_TASK_BYTES = 32 << 10


class Emitter:
    """Appends ops to a program, over the buffers of one RunState.

    Before a matmul its input must have been packed by `norm`, `pack` or `silu`; they fill what the next matmul reads.
    """

    def __init__(self, *, weights: WeightLoader, state: RunState, capacity: Capacity, tier: int) -> None:
        self.program = Program()
        self._weights, self._state, self._capacity, self._tier = weights, state, capacity, tier
        # What packed the input of the next matmuls, and how many columns it has.
        self._packing: Any = None
        self._columns = 0
        self._rows = state.inputs.address("rows")

    def norm(self, weight: str, epsilon: float, *, logits_only: bool = False) -> None:
        """Normalize and pack the residual stream, all rows or those that logits are wanted for."""
        columns = self._state.hidden.shape[1]
        if logits_only:
            self._rows = self._state.inputs.address("logit_rows")
        self._note_packing(
            NORM,
            norm_kernel(),
            columns,
            source=self._state.hidden.ctypes.data,
            gather=self._state.inputs.logit_index.ctypes.data if logits_only else 0,
            weight=self._state.hold(self._weights.vector(weight, columns)),
            epsilon=epsilon,
            scratch=self._buffer("norm_scratch"),
        )

    def pack(self, buffer: str, columns: int) -> None:
        """Pack a buffer."""
        self._note_packing(PACK, pack_kernel(), columns, source=self._buffer(buffer))

    def silu(self, columns: int) -> None:
        """Pack silu(gate) * up."""
        self._note_packing(SILU, silu_kernel(), columns, gate=self._buffer("gate"), up=self._buffer("up"))

    def matmul(self, weight: str, output: str | None, outputs: int, *, barrier: bool = True) -> None:
        """Multiply the packed input; the result goes to a buffer, or (None) is added to the residual stream."""
        target = self._state.hidden if output is None else self._state.buffers[output]
        matrix = self._weights.matrix(weight, outputs, self._columns)
        self._emit_matmul(matrix, target.ctypes.data, target.shape[1], add=output is None, barrier=barrier)

    def head(self, weight: str, vocabulary: int) -> None:
        """Multiply the packed rows into logits."""
        matrix = self._weights.matrix(weight, vocabulary, self._columns)
        logits = self._state.logits
        self._emit_matmul(matrix, logits.ctypes.data, logits.shape[1], add=False, barrier=True)

    def attention(
        self,
        heads: int,
        kv_heads: int,
        head_dim: int,
        rotary_dim: int,
        angles: int,
        *,
        pairing: int = rotary.NEIGHBOURS,
        window: int = 0,
    ) -> None:
        """Rotate, write keys and values, and attend: query, key, value -> attended."""
        kv_type, state = self._capacity.kv_type, self._state.attention
        keys, values = self._state.add_cache(kv_type, self._capacity.n_blocks, kv_heads, head_dim)
        shared = {
            "step": self._state.inputs.record.ctypes.data,
            "query": self._buffer("query"),
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": head_dim,
            "keys": keys,
            "values": values,
            "block_bytes": kv_type.block_bytes(head_dim),
        }
        self.program.emit(
            rotary.ROTARY,
            address(rotary.rotary_kernel(kv_type.number, self._tier)),
            "rotary",
            key=self._buffer("key"),
            value=self._buffer("value"),
            rotary_dim=rotary_dim,
            pairing=pairing,
            scale=1 / math.sqrt(head_dim),
            angles=angles,
            **shared,
        )
        self.program.emit(
            attention.ATTENTION,
            address(attention.attention_kernel(kv_type.number, self._tier)),
            "attention",
            output=self._buffer("attended"),
            window=window,
            scratch=state.scratch.ctypes.data,
            scratch_floats=state.scratch.shape[1],
            partials=state.partials.ctypes.data,
            counters=state.counters.ctypes.data,
            **shared,
        )

    def _emit_matmul(self, matrix: Matrix, output: int, stride: int, *, add: bool, barrier: bool) -> None:
        groups, blocks, packed_bytes = matrix.packed.shape
        self._ask_for(matrix)
        self.program.emit(
            MATMUL,
            address(gemv.matmul_kernel()),
            barrier=barrier,
            weights=self._state.hold(matrix.packed),
            groups=groups,
            groups_per_task=max(1, _TASK_BYTES // (blocks * packed_bytes)),
            blocks=blocks,
            columns=matrix.columns,
            rows=self._rows,
            output=output,
            output_stride=stride,
            add=int(add),
            packed=self._state.packed.address,
            **gemv.tile_functions(matrix.kind, self._tier),
        )

    def _note_packing(self, dtype: np.dtype, kernel: Any, columns: int, **fields: float) -> None:
        """Emit an op that packs; the matmuls that follow say in which forms they read its rows."""
        self._columns = columns
        self._packing = self.program.emit(
            dtype,
            address(kernel),
            columns=columns,
            rows=self._rows,
            packed=self._state.packed.address,
            forms=0,
            **fields,
        )

    def _ask_for(self, matrix: Matrix) -> None:
        """Have the input packed in the form that this matrix's kernels read."""
        self._packing["forms"] |= form_of(matrix.kind)

    def _buffer(self, name: str) -> int:
        return int(self._state.buffers[name].ctypes.data)
