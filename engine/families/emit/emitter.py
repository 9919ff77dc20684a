"""Emits ops into a program, and the norms and packings from which matmuls take their input.

A value of type `Rows` is a buffer of floats that an op has filled; a value of type `Packed` is the input of matmuls,
which only an op that packs gives. So the types of this folder's functions tell the order of a layer's ops, and a
family's builder reads like its formulas:

    n = norm(emit, emit.stream, "blk.0.ffn_norm.weight", epsilon)       n = rmsnorm(x)
    feed_forward(emit, n, ..., emit.stream, add=True)                   x += W_down (silu(W_gate n) * W_up n)
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from engine.families.emit.run_state import Capacity, Rows, RunState
from engine.weights.load import WeightLoader
from kernels.build.jit import Kernel
from kernels.delta.head_gate import HEAD_GATE, head_gate_kernel, task_columns
from kernels.matmul.activations import Activations, form_of
from kernels.matmul.row_ops import ADD_NORM, BIAS, NORM, PACK, add_norm_kernel, bias_kernel, norm_kernel, pack_kernel
from kernels.quant.weight_types import WeightType
from kernels.run.program import Program


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows as matmuls read them, until the next op packs into the same buffers."""

    buffers: Activations
    columns: int
    count: int  # address of an int64: the number of rows in this step
    record: np.ndarray  # the op that packs them; its `forms` says which forms matmuls read


class Emitter:
    """Appends ops to a program, over the buffers of one RunState."""

    def __init__(self, *, weights: WeightLoader, state: RunState, capacity: Capacity, tier: int) -> None:
        self.program = Program()
        self.weights, self.state, self.capacity, self.tier = weights, state, capacity, tier
        self._packings: dict[int, np.ndarray] = {}  # the last op that packs, by the address of its buffers
        inputs, hidden = state.inputs, state.hidden
        width = hidden.shape[1]
        self.stream = Rows("hidden", hidden, width, inputs.address("rows"))  # the residual stream
        self.logit_rows = Rows(
            "hidden", hidden, width, inputs.address("logit_rows"), inputs.logit_index.ctypes.data
        )  # of the stream: those that logits are wanted for
        self.final_rows = Rows(
            "hidden", hidden, width, inputs.final_count.ctypes.data, inputs.final_index.ctypes.data
        )  # of the stream: those whose final hidden state is needed

    def op(self, dtype: np.dtype, kernel: Kernel, name: str, *, barrier: float = True, **fields: float) -> np.ndarray:
        """Append one op and return its record; barrier=False lets threads go on to the next op at once."""
        return self.program.emit(dtype, kernel.address, name, barrier=barrier, **fields)

    def packing(
        self,
        dtype: np.dtype,
        kernel: Kernel,
        name: str,
        buffers: Activations,
        columns: int,
        count: int,
        **fields: float,
    ) -> Packed:
        """Append an op that packs `columns` columns into the buffers, in the forms that matmuls turn out to read."""
        record = self.op(dtype, kernel, name, columns=columns, packed=buffers.address, forms=0, **fields)
        self._packings[buffers.address] = record
        return Packed(buffers, columns, count, record)

    def read_as(self, packed: Packed, kind: WeightType) -> None:
        """Have rows packed in the form that matrices of this type read."""
        assert self._packings[packed.buffers.address] is packed.record, "another op has packed over these rows"
        packed.record["forms"] |= form_of(kind)

    def has(self, weight: str) -> bool:
        """Tell whether the model has a tensor."""
        return self.weights.has(weight)

    def vector(self, name: str, length: int) -> int:
        """The address of a one-dimensional tensor, as float32."""
        return self.state.hold(self.weights.vector(name, length))

    def vector_if_any(self, name: str, length: int) -> int:
        """The address of a one-dimensional tensor, as float32; 0 where the model does not have it."""
        return self.vector(name, length) if self.has(name) else 0

    def joined_vectors(self, lengths: Mapping[str, int]) -> int:
        """The address of vectors of these lengths, one after the other; 0 where the model has none of them.

        Zeros stand for those that the model lacks: a file may have the bias of queries alone.
        """
        if not any(map(self.has, lengths)):
            return 0
        vectors = [
            self.weights.vector(name, length) if self.has(name) else np.zeros(length, np.float32)
            for name, length in lengths.items()
        ]
        return self.state.hold(np.concatenate(vectors))

    def end_layer(self) -> None:
        """Note that the residual stream is now what a layer leaves: see Runner.trace."""
        self.program.layer_ends.append(len(self.program))


def norm(emit: Emitter, source: Rows, weight: str, epsilon: float, *, plain: Rows | None = None) -> Packed:
    """Pack the norm of rows; `plain` gets it too, as floats."""
    return emit.packing(
        NORM,
        norm_kernel(),
        f"norm {weight}",
        emit.state.packed,
        source.width,
        source.count,
        **_norm_fields(emit, source, weight, epsilon),
        output=0 if plain is None else plain.address,
        output_stride=source.width if plain is None else plain.stride,
    )


def plain_norm(
    emit: Emitter,
    source: Rows,
    weight: str,
    epsilon: float,
    target: Rows,
    *,
    kind: str = "norm",
    barrier: bool = True,
) -> None:
    """Write the norm of rows as floats; no matmul reads it. `kind`: what the ledger calls the op."""
    emit.op(
        NORM,
        norm_kernel(),
        f"{kind} {weight}",
        barrier=barrier,
        **_norm_fields(emit, source, weight, epsilon),
        columns=source.width,
        output=target.address,
        output_stride=target.stride,
        packed=emit.state.packed.address,
        forms=0,
    )


def _norm_fields(emit: Emitter, source: Rows, weight: str, epsilon: float) -> dict[str, float]:
    scratch = emit.state.norm_scratch
    assert source.stride == source.width <= scratch.shape[1]
    return {
        "source": source.address,
        "gather": source.index,
        "rows": source.count,
        "weight": emit.vector(weight, source.width),
        "epsilon": epsilon,
        "scratch": int(scratch.ctypes.data),
    }


def add_norm(emit: Emitter, source: Rows, weight: str, epsilon: float, target: Rows) -> None:
    """Add the norm of rows to others; the source is lost."""
    assert source.stride == source.width == target.stride
    emit.op(
        ADD_NORM,
        add_norm_kernel(),
        f"norm {weight}",
        source=source.address,
        target=target.address,
        weight=emit.vector(weight, source.width),
        epsilon=epsilon,
        columns=source.width,
        rows=source.count,
    )


def add_bias(emit: Emitter, name: str, target: Rows) -> None:
    """Add a vector to all rows, if the model has it."""
    if emit.has(name):
        emit.op(
            BIAS,
            bias_kernel(),
            f"bias {name}",
            target=target.address,
            bias=emit.vector(name, target.width),
            columns=target.width,
            rows=target.count,
        )


def pack(emit: Emitter, source: Rows) -> Packed:
    """Pack rows as they are."""
    assert source.stride == source.width and source.index == 0
    return emit.packing(
        PACK,
        pack_kernel(),
        f"pack {source.name}",
        emit.state.packed,
        source.width,
        source.count,
        source=source.address,
        rows=source.count,
    )


def gate_heads(
    emit: Emitter,
    source: Rows,
    gate: Rows,
    head_dim: int,
    *,
    between: bool = False,
    weight: str | None = None,
    epsilon: float = 0.0,
) -> Packed:
    """Pack heads times their gates: sigmoid(gate), or silu(gate) with a norm's weight.

    between: each head's gate comes after as many other numbers in the rows of `gate`.
    """
    step = 2 * head_dim if between else head_dim
    return emit.packing(
        HEAD_GATE,
        head_gate_kernel(),
        f"gate {weight or source.name}",
        emit.state.packed,
        source.width,
        source.count,
        source=source.address,
        rows=source.count,
        gate=gate.address + (head_dim * 4 if between else 0),
        gate_row_bytes=gate.stride * 4,
        gate_head_bytes=step * 4,
        head_dim=head_dim,
        weight=0 if weight is None else emit.vector(weight, head_dim),
        epsilon=epsilon,
        task_columns=task_columns(head_dim),
    )
