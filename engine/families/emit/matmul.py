"""Emits matmuls of packed rows: alone, several of one tensor, gated feed-forward layers, and the head."""

from collections.abc import Sequence
from typing import NamedTuple, Self

from engine.families.emit.emitter import Emitter, Packed
from engine.families.emit.run_state import Rows
from engine.weights.load import Matrix
from kernels.matmul import gemv
from kernels.matmul.gated_matmul import GATED, cut_units, gated_kernel, thread_pairs
from kernels.matmul.row_ops import SILU
from kernels.matmul.tiles import MATMUL
from kernels.quant.quads import ROWS
from kernels.sampling.logits import LIKELIEST, likeliest_kernel


def matmul(
    emit: Emitter, packed: Packed, weight: str, target: Rows, *, add: bool = False, barrier: bool = True
) -> None:
    """Multiply rows by a matrix with as many outputs as the target is wide; add: to what the target holds."""
    matrix = emit.weights.matrix(weight, target.width, packed.columns)
    name = f"matmul {weight} {_size(target.width, matrix)}"
    _emit_matmul(emit, packed, matrix, name, target, add=add, barrier=barrier)


def split_matmul(emit: Emitter, packed: Packed, weight: str, targets: Sequence[Rows]) -> None:
    """Multiply rows by a matrix whose outputs are those of several targets; widths are multiples of 16."""
    total = sum(target.width for target in targets)
    whole, first = emit.weights.matrix(weight, total, packed.columns), 0
    for target in targets:
        end = first + target.width
        part = Matrix(whole.kind, whole.packed[first // ROWS : end // ROWS], whole.columns)
        name = f"matmul {weight} {_size(target.width, whole)}"
        _emit_matmul(emit, packed, part, name, target, add=False, barrier=end == total)
        first = end


class GatedTensors(NamedTuple):
    """The matrices of a gated feed-forward layer."""

    gate: str
    up: str
    down: str
    width: int  # outputs of gate and of up

    @classmethod
    def of(cls, name: str, width: int, suffix: str = "") -> Self:
        """Those of layer `name` ("blk.3") as GGUF names them."""
        gate, up, down = (f"{name}.ffn_{part}{suffix}.weight" for part in ("gate", "up", "down"))
        return cls(gate, up, down, width)


def feed_forward(
    emit: Emitter,
    packed: Packed,
    tensors: GatedTensors,
    target: Rows,
    *,
    activation: int = SILU,
    add: bool = False,
    barrier: bool = True,
) -> None:
    """Compute down(act(gate) * up) of packed rows; biases of gate and up are added, if the model has them."""
    down = emit.weights.matrix(tensors.down, target.width, tensors.width)
    gated = _emit_gated(emit, packed, tensors, down, activation)
    name = f"matmul {tensors.down} {_size(target.width, down)}"
    _emit_matmul(emit, gated, down, name, target, add=add, barrier=barrier)


def head(emit: Emitter, packed: Packed, weight: str, vocabulary: int) -> None:
    """Multiply rows into logits, and find the likeliest token of each."""
    matrix, state = emit.weights.matrix(weight, vocabulary, packed.columns), emit.state
    logits = Rows("logits", state.logits, vocabulary, packed.count)
    name = f"head {weight} {_size(vocabulary, matrix)}"
    _emit_matmul(emit, packed, matrix, name, logits, add=False, barrier=True)
    emit.op(
        LIKELIEST,
        likeliest_kernel(),
        "likeliest",
        logits=logits.address,
        stride=logits.stride,
        vocabulary=vocabulary,
        rows=packed.count,
        tokens=state.likeliest.ctypes.data,
    )


def matmul_fields(emit: Emitter, packed: Packed, matrix: Matrix, output_stride: int) -> dict[str, int]:
    """What every record of a matmul says, whichever op runs it; the rows get packed in the form that it reads."""
    emit.read_as(packed, matrix.kind)
    return {
        "weights": emit.state.hold(matrix.packed),
        "groups": len(matrix.packed),
        "blocks": matrix.packed.shape[1],
        "columns": matrix.columns,
        "output_stride": output_stride,
        "packed": packed.buffers.address,
        **gemv.tile_functions(matrix.kind, emit.tier),
    }


def _emit_matmul(
    emit: Emitter, packed: Packed, matrix: Matrix, name: str, target: Rows, *, add: bool, barrier: bool
) -> None:
    assert packed.count == target.count and target.index == 0, "a matmul gives as many rows as it takes"
    emit.op(
        MATMUL,
        gemv.matmul_kernel(),
        name,
        barrier=barrier,
        **gemv.task_bounds(matrix.group_bytes),
        rows=packed.count,
        output=target.address,
        add=int(add),
        **matmul_fields(emit, packed, matrix, target.stride),
    )


def _emit_gated(emit: Emitter, packed: Packed, tensors: GatedTensors, down: Matrix, activation: int) -> Packed:
    """Emit the op of gate and up, which packs the input of down."""
    gate_name, up_name, _, width = tensors
    state, threads = emit.state.feed_forward, emit.capacity.threads
    assert state is not None
    gate, up = (emit.weights.matrix(name, width, packed.columns) for name in (gate_name, up_name))
    group_bytes = max(gate.group_bytes, up.group_bytes)
    task_bytes = gemv.large_task_bytes(2 * len(gate.packed) * group_bytes, threads)
    unit, part = cut_units(down.kind.granule // ROWS, group_bytes, task_bytes)
    gate_fields, up_fields = (matmul_fields(emit, packed, matrix, unit * ROWS) for matrix in (gate, up))
    gate_bias, up_bias = (
        emit.vector_if_any(f"{name.removesuffix('weight')}bias", width) for name in (gate_name, up_name)
    )
    return emit.packing(
        GATED,
        gated_kernel(),
        f"matmul {gate_name} {up_name} {_size(2 * width, gate, up)}",
        state.packed,
        width,
        packed.count,
        rows=packed.count,
        pairs=emit.state.hold(thread_pairs(gate_fields, up_fields, threads)),
        groups=len(gate.packed),
        unit_groups=unit,
        part_groups=part,
        rows_at_once=state.rows_at_once,
        scratch=state.scratch.ctypes.data,
        counters=state.counters.ctypes.data,
        activation=activation,
        gate_bias=gate_bias,
        up_bias=up_bias,
    )


def _size(outputs: int, *matrices: Matrix) -> str:
    """Matrices of one input as the ledger names them: "Q4_K 2048x2048"."""
    kinds = "+".join(dict.fromkeys(matrix.kind.name for matrix in matrices))
    return f"{kinds} {outputs}x{matrices[0].columns}"
