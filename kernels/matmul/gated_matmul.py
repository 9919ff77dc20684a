"""Gate and up in one op, with the activation and the packing: y = act(gate x) * (up x), packed as a matmul's input.

Where the matrices have biases, these are added to the finished sums: y = act(gate x + a) * (up x + b).

Outputs are cut into units: whole blocks of what the next matmul reads. A part is some groups of one matrix, within a
unit. Where a step has few rows, a task is one part, and the thread that ends a unit's last part activates and packs
the unit: no thread waits, and tasks are as small as a plain matmul's. Where it has more than `rows_at_once`, a task is
a whole unit for that many rows, in memory of the thread's own, so that gate and up are read while they are in its
cache. Either way a value goes through the same operations.

Bytes moved: both packed weights once (for many rows: once for every `rows_at_once`, mostly out of a cache), the packed
input once for every part, and about 1.4 * columns written a row.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernels.build.jit import KERNEL_SIGNATURE, kernel, njit_inline
from kernels.matmul.activations import NEVER, PACKED, pack_lane, tile_width, widest_tile
from kernels.matmul.gemv import run_tiles
from kernels.matmul.row_ops import activate, add_bias
from kernels.matmul.tiles import MATMUL
from kernels.run.atomics import atomic_add, atomic_store
from kernels.run.program import OP_BYTES, claim_task, op_record, record_at
from kernels.simd.vectors import load_i64, store_i64

GATED = op_record(
    pairs="u8",  # PAIR [threads]
    groups="i8",  # of 16 outputs of each matrix
    unit_groups="i8",
    part_groups="i8",
    columns="i8",  # outputs of each matrix
    rows="u8",  # address of the row count, int64
    rows_at_once="i8",  # a multiple of 16
    scratch="u8",  # float32 [max(units, threads)][gate, up][rows_at_once][unit_groups * 16]
    counters="u8",  # int64 [units], parts that are done; 0 between ops
    activation="i8",  # SILU or GELU
    gate_bias="u8",  # float32 [columns]; 0: none
    up_bias="u8",  # likewise
    packed="u8",  # address of the PACKED record of the result, with the crossover of the input's
    forms="i8",
)

# What a thread hands to the tile functions: its own records, and the end of the rows that it is at.
_END_AT = 2 * OP_BYTES
PAIR = np.dtype(
    {
        "names": ["gate", "up", "end"],
        "formats": [MATMUL, MATMUL, "i8"],
        "offsets": [0, OP_BYTES, _END_AT],
        "itemsize": _END_AT + 64,
    }
)
_PAIR_BYTES = PAIR.itemsize


# A bound of the scratch that a unit takes; 16 groups are a block of 256.
MAX_UNIT_GROUPS = 32


def rows_at_once(crossover: int) -> int:
    """Return how many rows a thread takes through a unit at once; `crossover` as in the PACKED records."""
    return 64 if crossover == NEVER else 256


def thread_pairs(gate: Mapping[str, int], up: Mapping[str, int], threads: int) -> np.ndarray:
    """Make the PAIR of each thread from the fields that the matrices' MATMUL records have in common for all threads.

    output_stride is unit_groups * 16; `output` and `rows` are set here or by the op.
    """
    pairs = np.zeros(threads, PAIR)
    for name, fields in (("gate", gate), ("up", up)):
        for field, value in fields.items():
            pairs[name][field] = value
        pairs[name]["rows"] = pairs.ctypes.data + np.arange(threads) * _PAIR_BYTES + _END_AT
    return pairs


def cut_units(granule: int, group_bytes: int, task_bytes: int) -> tuple[int, int]:
    """Return (unit_groups, part_groups) so that a part has about `task_bytes` of packed weights.

    granule: groups that make a whole block of the next matmul's input, a power of two; group_bytes: of one matrix.
    """
    wanted = min(MAX_UNIT_GROUPS, max(1, task_bytes // group_bytes))
    if wanted >= granule:
        unit = wanted // granule * granule
        return unit, unit
    return granule, 1 << (wanted.bit_length() - 1)


@njit_inline
def _run_part(pair, gated, unit, part, start, end, widest):
    """Compute one part of a unit for the rows start..end-1; even parts are of gate."""
    record = pair + np.uintp(part % 2 * OP_BYTES)
    first = unit * gated.unit_groups + part // 2 * gated.part_groups
    last = min(first + gated.part_groups, gated.groups)
    run_tiles(record, record_at(record, MATMUL), first, last, start, end, widest)


@njit_inline
def _finish(gated, gate, up, unit, start, end, widest):
    """Activate and pack a unit of the rows start..end-1, whose values stand at `gate` and `up`."""
    packed = record_at(np.uintp(gated.packed), PACKED)
    columns, unit_columns = gated.columns, gated.unit_groups * 16
    first = unit * unit_columns
    last = min(first + unit_columns, columns)
    row = start
    while row < end:
        width = tile_width(row, end, widest)
        for lane in range(width):
            offset = np.uintp((row - start + lane) * unit_columns * 4)
            if gated.gate_bias != 0:
                add_bias(gate + offset, np.uintp(gated.gate_bias) + np.uintp(first * 4), last - first)
            if gated.up_bias != 0:
                add_bias(up + offset, np.uintp(gated.up_bias) + np.uintp(first * 4), last - first)
            activate(gated.activation, gate + offset, up + offset, last - first)
            source = gate + offset - np.uintp(first * 4)
            pack_lane(source, row, lane, width, columns, first, last, packed, gated.forms)
        row += width


@kernel(KERNEL_SIGNATURE)
def gated_kernel() -> Any:
    """Compile the op."""

    def gated_op(op, thread, threads):
        gated = record_at(op, GATED)
        rows, at_once = load_i64(np.uintp(gated.rows)), gated.rows_at_once
        unit_bytes = gated.unit_groups * 64  # of one row
        units = (gated.groups + gated.unit_groups - 1) // gated.unit_groups
        parts = 2 * ((gated.unit_groups + gated.part_groups - 1) // gated.part_groups)
        # Input and result are packed in tiles of all rows, so all rows decide.
        widest = widest_tile(rows, record_at(np.uintp(gated.packed), PACKED).crossover)
        is_shared = rows <= at_once
        chunks, tasks = np.int64(1), parts  # of a unit
        if not is_shared:
            chunks = (rows + at_once - 1) // at_once
            tasks = chunks
        pair = np.uintp(gated.pairs) + np.uintp(thread * _PAIR_BYTES)
        gate_matmul, up_matmul = record_at(pair, MATMUL), record_at(pair + np.uintp(OP_BYTES), MATMUL)
        while True:
            task = claim_task(op)
            unit = task // tasks
            if unit >= units:
                return
            start = task % chunks * at_once
            end = min(start + at_once, rows)
            slot = unit if is_shared else thread
            gate = np.uintp(gated.scratch) + np.uintp(2 * slot * at_once * unit_bytes)
            up = gate + np.uintp(at_once * unit_bytes)
            # The tile functions count rows and groups from 0.
            before = np.uintp((start + unit) * unit_bytes)
            gate_matmul.output, up_matmul.output = gate - before, up - before
            store_i64(end, pair + np.uintp(_END_AT))
            if is_shared:
                _run_part(pair, gated, unit, task % parts, start, end, widest)
                counter = np.uintp(gated.counters) + np.uintp(unit * 8)
                if atomic_add(counter, 1) < parts - 1:
                    continue
                atomic_store(0, counter)
            else:
                for part in range(parts):
                    _run_part(pair, gated, unit, part, start, end, widest)
            _finish(gated, gate, up, unit, start, end, widest)

    return gated_op
