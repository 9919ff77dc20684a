"""Emits the ops that families are made of; a family's builder then reads like its formulas."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from engine.emit.run_state import Capacity, RunState
from engine.families.transformer_config import TransformerConfig
from engine.weights.load import Matrix, WeightLoader
from kernels.attention import attention, rotary
from kernels.build.jit import address
from kernels.delta.head_gate import HEAD_GATE, head_gate_kernel, task_columns
from kernels.matmul import gemv
from kernels.matmul.activations import Activations, form_of
from kernels.matmul.gated_matmul import GATED, cut_units, gated_kernel, thread_pairs
from kernels.matmul.row_ops import (
    ADD_NORM,
    BIAS,
    NORM,
    PACK,
    SILU,
    add_norm_kernel,
    bias_kernel,
    norm_kernel,
    pack_kernel,
)
from kernels.matmul.tiles import MATMUL
from kernels.quant.quads import ROWS
from kernels.run.program import Program
from kernels.sampling.logits import LIKELIEST, likeliest_kernel


class Emitter:
    """Appends ops to a program, over the buffers of one RunState.

    Before a matmul its input must have been packed by `norm` or `pack`; they fill what the next matmuls read.
    """

    def __init__(self, *, weights: WeightLoader, state: RunState, capacity: Capacity, tier: int) -> None:
        self.program = Program()
        self._weights, self._state, self._capacity, self._tier = weights, state, capacity, tier
        # What packs the input of the next matmuls, where to, and how many columns it has.
        self._packing: Any = None
        self._packed = state.packed
        self._columns = 0
        self._rows = state.inputs.address("rows")

    def norm(self, weight: str, epsilon: float, *, logits_only: bool = False, output: str | None = None) -> None:
        """Normalize and pack the residual stream, all rows or those that logits are wanted for.

        A buffer `output` gets the normalized rows as plain floats too.
        """
        columns = self._state.hidden.shape[1]
        if logits_only:
            self._rows = self._state.inputs.address("logit_rows")
        self._emit_packing(
            NORM,
            norm_kernel(),
            f"norm {weight}",
            self._state.packed,
            columns,
            source=self._state.hidden.ctypes.data,
            gather=self._state.inputs.logit_index.ctypes.data if logits_only else 0,
            weight=self._state.hold(self._weights.vector(weight, columns)),
            epsilon=epsilon,
            scratch=self._buffer("norm_scratch"),
            output=0 if output is None else self._buffer(output),
            output_stride=columns,
        )

    def final_norm(self, weight: str, epsilon: float) -> None:
        """Normalize the rows whose final hidden state is wanted, as plain floats; ends no segment."""
        state, inputs = self._state, self._state.inputs
        self._emit_plain_norm(
            "final",
            weight,
            epsilon,
            barrier=False,
            source=state.hidden.ctypes.data,
            gather=inputs.final_index.ctypes.data,
            rows=inputs.final_count.ctypes.data,
            output=state.final.ctypes.data,
            output_stride=state.hidden.shape[1],
        )

    def join_norm(
        self, buffer: str, weight: str, epsilon: float, output: str, *, first: int, barrier: bool = True
    ) -> None:
        """Write the norm of a buffer's rows to the columns from `first` on of another's, as plain floats."""
        target = self._state.buffers[output]
        self._emit_plain_norm(
            "norm",
            weight,
            epsilon,
            barrier=barrier,
            source=self._buffer(buffer),
            gather=0,
            rows=self._rows,
            output=target[:, first:].ctypes.data,
            output_stride=target.shape[1],
        )

    def _emit_plain_norm(self, kind: str, weight: str, epsilon: float, *, barrier: bool, **fields: int) -> None:
        """Emit a norm of which nothing is packed: no matmul reads its rows."""
        columns = self._state.hidden.shape[1]
        self.program.emit(
            NORM,
            address(norm_kernel()),
            f"{kind} {weight}",
            barrier=barrier,
            weight=self._state.hold(self._weights.vector(weight, columns)),
            epsilon=epsilon,
            columns=columns,
            scratch=self._buffer("norm_scratch"),
            packed=self._state.packed.address,
            forms=0,
            **fields,
        )

    def has(self, weight: str) -> bool:
        """Tell whether the model has a tensor."""
        return self._weights.has(weight)

    def add_norm(self, buffer: str, weight: str, epsilon: float) -> None:
        """Add the norm of a buffer's rows to the residual stream."""
        columns = self._state.hidden.shape[1]
        self.program.emit(
            ADD_NORM,
            address(add_norm_kernel()),
            f"norm {weight}",
            source=self._buffer(buffer),
            target=self._state.hidden.ctypes.data,
            weight=self._state.hold(self._weights.vector(weight, columns)),
            epsilon=epsilon,
            columns=columns,
            rows=self._rows,
        )

    def end_layer(self) -> None:
        """Note that the residual stream is now what a layer leaves: see Runner.trace."""
        self.program.layer_ends.append(len(self.program))

    def pack(self, buffer: str, columns: int) -> None:
        """Pack a buffer."""
        self._emit_packing(
            PACK, pack_kernel(), f"pack {buffer}", self._state.packed, columns, source=self._buffer(buffer)
        )

    def gate_heads(
        self,
        buffer: str,
        gate: str,
        heads: int,
        head_dim: int,
        *,
        between: bool = False,
        weight: str | None = None,
        epsilon: float = 0.0,
    ) -> None:
        """Pack a buffer's heads times their gates: sigmoid(gate), or silu(gate) with a norm's weight.

        between: each head's gate comes after as many other numbers in the buffer `gate`.
        """
        step = 2 * head_dim if between else head_dim
        self._emit_packing(
            HEAD_GATE,
            head_gate_kernel(),
            f"gate {weight or buffer}",
            self._state.packed,
            heads * head_dim,
            source=self._buffer(buffer),
            gate=self._buffer(gate) + (head_dim * 4 if between else 0),
            gate_row_bytes=heads * step * 4,
            gate_head_bytes=step * 4,
            head_dim=head_dim,
            weight=0 if weight is None else self._state.hold(self._weights.vector(weight, head_dim)),
            epsilon=epsilon,
            task_columns=task_columns(head_dim),
        )

    def matmul(self, weight: str, output: str | None, outputs: int, *, barrier: bool = True) -> None:
        """Multiply the packed input; the result goes to a buffer, or (None) is added to the residual stream."""
        target = self._target(output)
        matrix = self._weights.matrix(weight, outputs, self._columns)
        name = f"matmul {weight} {_shape(outputs, matrix)}"
        self._emit_matmul(matrix, name, target, add=output is None, barrier=barrier)

    def bias(self, name: str) -> None:
        """Add the bias `name` of the last matmul to the residual stream, if the model has it."""
        if self.has(name):
            columns = self._state.hidden.shape[1]
            self.program.emit(
                BIAS,
                address(bias_kernel()),
                f"bias {name}",
                target=self._state.hidden.ctypes.data,
                bias=self._state.hold(self._weights.vector(name, columns)),
                columns=columns,
                rows=self._rows,
            )

    def matmuls(self, weight: str, outputs: Mapping[str, int]) -> None:
        """Multiply the packed input by a matrix whose rows are those of several buffers: multiples of 16 of each."""
        whole, first = self._weights.matrix(weight, sum(outputs.values()), self._columns), 0
        for output, rows in outputs.items():
            packed = whole.packed[first // ROWS : (first + rows) // ROWS]
            first += rows
            name = f"matmul {weight} {_shape(rows, whole)}"
            is_last = first == sum(outputs.values())
            part = Matrix(whole.kind, packed, whole.columns)
            self._emit_matmul(part, name, self._target(output), add=False, barrier=is_last)

    def head(self, weight: str, vocabulary: int) -> None:
        """Multiply the packed rows into logits, and find the likeliest token of each."""
        matrix, state = self._weights.matrix(weight, vocabulary, self._columns), self._state
        name = f"head {weight} {_shape(vocabulary, matrix)}"
        self._emit_matmul(matrix, name, state.logits, add=False, barrier=True)
        self.program.emit(
            LIKELIEST,
            address(likeliest_kernel()),
            "likeliest",
            logits=state.logits.ctypes.data,
            stride=state.logits.shape[1],
            vocabulary=vocabulary,
            rows=self._rows,
            tokens=state.likeliest.ctypes.data,
        )

    def feed_forward(
        self,
        gate: str,
        up: str,
        down: str,
        width: int,
        *,
        activation: int = SILU,
        output: str | None = None,
        barrier: bool = True,
    ) -> None:
        """Compute down(act(gate) * up) of the packed input; `width` outputs of gate and up, whose biases are added.

        The result goes to a buffer, or (None) is added to the residual stream; `bias` adds the bias of down.
        """
        hidden = self._state.hidden.shape[1]
        down_matrix = self._weights.matrix(down, hidden, width)
        self._emit_gated(gate, up, down_matrix, width, activation)
        name = f"matmul {down} {_shape(hidden, down_matrix)}"
        self._emit_matmul(down_matrix, name, self._target(output), add=output is None, barrier=barrier)

    def attention(
        self,
        config: TransformerConfig,
        angles: int,
        *,
        pairing: int = rotary.HALVES,
        window: int = 0,
        biases: Mapping[str, int] = MappingProxyType({}),
        norms: Sequence[str] = (),
        gated: bool = False,
    ) -> None:
        """Rotate, write keys and values, and attend: query, key, value -> attended.

        biases: tensors with the biases of q, k and v, and their lengths; norms: tensors for the heads of q and k;
        gated: queries stand in query_gate, each head's before its gate.
        """
        kv_type, state, head_dim = self._capacity.kv_type, self._state.attention, config.head_dim
        group = state.group(window)
        cache = group.add_layer(kv_type)
        shared = {
            "step": self._state.inputs.record.ctypes.data,
            "group": group.record.ctypes.data,
            "query": self._buffer("query"),
            "heads": config.heads,
            "kv_heads": config.kv_heads,
            "head_dim": head_dim,
            "keys": cache.keys.ctypes.data,
            "values": cache.values.ctypes.data,
            "block_bytes": kv_type.block_bytes(head_dim),
        }
        self.program.emit(
            rotary.ROTARY,
            address(rotary.rotary_kernel(kv_type.number)),
            "rotary",
            gated=self._buffer("query_gate") if gated else 0,
            key=self._buffer("key"),
            value=self._buffer("value"),
            biases=self._joined(biases),
            norms=self._joined(dict.fromkeys(norms, head_dim)),
            epsilon=config.epsilon,
            rotary_dim=config.rope.dimensions,
            pairing=pairing,
            scale=config.attention_scale,
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

    def _emit_matmul(self, matrix: Matrix, name: str, target: np.ndarray, *, add: bool, barrier: bool) -> None:
        self.program.emit(
            MATMUL,
            address(gemv.matmul_kernel()),
            name,
            barrier=barrier,
            **gemv.task_bounds(matrix.group_bytes),
            rows=self._rows,
            output=target.ctypes.data,
            add=int(add),
            **self._matmul_fields(matrix, target.shape[1]),
        )

    def _bias_address(self, weight: str, outputs: int) -> int:
        """The address of the bias that belongs to a matrix; 0 where the model has none."""
        name = f"{weight.removesuffix('weight')}bias"
        return self._state.hold(self._weights.vector(name, outputs)) if self.has(name) else 0

    def _emit_gated(self, gate_name: str, up_name: str, down: Matrix, width: int, activation: int) -> None:
        """Emit the op of gate and up, which packs the input of down."""
        state, threads = self._state.feed_forward, self._capacity.threads
        assert state is not None
        gate, up = (self._weights.matrix(name, width, self._columns) for name in (gate_name, up_name))
        group_bytes = max(gate.group_bytes, up.group_bytes)
        task_bytes = gemv.large_task_bytes(2 * len(gate.packed) * group_bytes, threads)
        unit, part = cut_units(down.kind.granule // ROWS, group_bytes, task_bytes)
        gate_fields, up_fields = (self._matmul_fields(matrix, unit * ROWS) for matrix in (gate, up))
        self._emit_packing(
            GATED,
            gated_kernel(),
            f"matmul {gate_name} {up_name} {_shape(2 * width, gate, up)}",
            state.packed,
            width,
            pairs=self._state.hold(thread_pairs(gate_fields, up_fields, threads)),
            groups=len(gate.packed),
            unit_groups=unit,
            part_groups=part,
            rows_at_once=state.rows_at_once,
            scratch=state.scratch.ctypes.data,
            counters=state.counters.ctypes.data,
            activation=activation,
            gate_bias=self._bias_address(gate_name, width),
            up_bias=self._bias_address(up_name, width),
        )

    def _matmul_fields(self, matrix: Matrix, output_stride: int) -> dict[str, int]:
        """What the records of a matmul of the packed input say whoever runs it; has the input packed as it reads it."""
        self._packing["forms"] |= form_of(matrix.kind)
        return {
            "weights": self._state.hold(matrix.packed),
            "groups": len(matrix.packed),
            "blocks": matrix.packed.shape[1],
            "columns": matrix.columns,
            "output_stride": output_stride,
            "packed": self._packed.address,
            **gemv.tile_functions(matrix.kind, self._tier),
        }

    def _emit_packing(
        self, dtype: np.dtype, kernel: Any, name: str, packed: Activations, columns: int, **fields: float
    ) -> None:
        """Emit an op that packs; the matmuls that follow say in which forms they read its rows."""
        self._packed, self._columns = packed, columns
        self._packing = self.program.emit(
            dtype,
            address(kernel),
            name,
            columns=columns,
            rows=self._rows,
            packed=packed.address,
            forms=0,
            **fields,
        )

    def _target(self, output: str | None) -> np.ndarray:
        return self._state.hidden if output is None else self._state.buffers[output]

    def _joined(self, lengths: Mapping[str, int]) -> int:
        """The address of vectors of these lengths, one after the other; 0 where there are none.

        Zeros stand for those that the model lacks: a file may have the bias of queries alone.
        """
        if not any(map(self.has, lengths)):
            return 0
        vectors = [
            self._weights.vector(name, length) if self.has(name) else np.zeros(length, np.float32)
            for name, length in lengths.items()
        ]
        return self._state.hold(np.concatenate(vectors))

    def _buffer(self, name: str) -> int:
        return int(self._state.buffers[name].ctypes.data)


def _shape(outputs: int, *matrices: Matrix) -> str:
    """Matrices of one input as the ledger names them."""
    kinds = "+".join(dict.fromkeys(matrix.kind.name for matrix in matrices))
    return f"{kinds} {outputs}x{matrices[0].columns}"
