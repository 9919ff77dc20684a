"""A mixture of experts over rows sorted by expert (moe_routing.py): every touched expert's weights are read once.

    y[r] (+)= sum over slots s of weight[r, s] * down_e(silu(gate_e x[r]) * up_e x[r]),  e = chosen[r, s]
              + sigmoid(g[r]) * shared[r], where there is a shared expert

The ops in their order; places are the sorted pairs (row, slot), of which there are rows * active:

    ROUTE           router logits -> routing
    EXPERT_PACK     x -> packed places: the input of gate and up
    EXPERT_MATMUL   gate and up (the first of them needs no barrier), float32 [places, columns]
    EXPERT_SILU     silu(gate) * up -> packed places: the input of down
    EXPERT_MATMUL   down, float32 [places, outputs]
    COMBINE         the weighted sum in rank order (law 5)

Packed places stand in one set of buffers, in tiles of each expert's own rows (activations.py), so a matmul's tile
functions serve as they are. Weights are packed [experts][groups][blocks][packed bytes], of one type. Bytes moved: those
of the touched experts, and a few times the activations of all places.
"""

from typing import Any

import numpy as np

from kernels.build.jit import KERNEL_SIGNATURE, kernel, njit_inline
from kernels.matmul.activations import PACKED, pack_lane, widest_tile
from kernels.matmul.gemv import run_tiles
from kernels.matmul.moe_routing import ROUTING
from kernels.matmul.row_ops import silu_times_up
from kernels.matmul.tiles import MATMUL
from kernels.run.program import OP_BYTES, claim_task, op_record, record_at
from kernels.simd.exp import exp_f32
from kernels.simd.vectors import fma, load_f32, load_f32x16, load_i64, splat_f32x16, store_vector

EXPERT_PACK = op_record(
    source="u8",  # float32 [rows, columns]
    columns="i8",
    forms="i8",
    packed="u8",  # address of a PACKED record, for rows * active places
    routing="u8",  # address of the ROUTING record
)
EXPERT_SILU = op_record(
    gate="u8",  # float32 [places, stride], overwritten
    up="u8",  # float32 [places, stride]
    stride="i8",
    columns="i8",
    forms="i8",
    packed="u8",
    routing="u8",
)
# A MATMUL whose weights are those of expert 0, and whose output rows are places; `rows` is not read, and every task is
# of `most_groups`.
_OWN = ("function", "barrier", "ticket")
EXPERT_MATMUL = op_record(
    **{name: MATMUL[name].str for name in MATMUL.names or () if name not in _OWN},
    expert_bytes="i8",  # from one expert's packed weights to the next one's
    records="u8",  # scratch: uint8 [threads, OP_BYTES]
    routing="u8",
)
COMBINE = op_record(
    source="u8",  # float32 [places, columns]
    shared="u8",  # float32 [rows, columns] of the shared expert; 0: none
    shared_gate="u8",  # float32 [rows, shared_gate_stride]: its gate before the sigmoid, in each row's first; 0: none
    shared_gate_stride="i8",
    columns="i8",
    output="u8",  # float32 [rows, columns]
    add="i8",  # 1: add to what the output holds (the residual)
    rows="u8",  # address of the row count, int64
    routing="u8",
)

# Columns of one task of packing and of combining.
_TASK_COLUMNS = 512


@njit_inline
def _parts(columns):
    """How many tasks a row's columns are."""
    return (columns + _TASK_COLUMNS - 1) // _TASK_COLUMNS


@njit_inline
def _part_of_tile(routing, task, columns):
    """The first place and the width of a task's tile, and the task's columns first..last-1; width 0: no such task."""
    parts = _parts(columns)
    if task >= routing.tile_count * parts:
        return np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    starts = np.uintp(routing.tiles) + np.uintp(task // parts * 8)
    start = load_i64(starts)
    first = task % parts * _TASK_COLUMNS
    return start, load_i64(starts + np.uintp(8)) - start, first, min(first + _TASK_COLUMNS, columns)


@kernel(KERNEL_SIGNATURE)
def expert_pack_kernel() -> Any:
    """Compile the gathering of rows into packed places; a task is some columns of one tile."""

    def expert_pack_op(op, thread, threads):
        pack = record_at(op, EXPERT_PACK)
        columns, packed = pack.columns, record_at(np.uintp(pack.packed), PACKED)
        routing = record_at(np.uintp(pack.routing), ROUTING)
        while True:
            start, width, first, last = _part_of_tile(routing, claim_task(op), columns)
            if width == 0:
                return
            for lane in range(width):
                row = load_i64(np.uintp(routing.pairs) + np.uintp((start + lane) * 8)) // routing.active
                source = np.uintp(pack.source) + np.uintp(row * columns * 4)
                pack_lane(source, start, lane, width, columns, first, last, packed, pack.forms)

    return expert_pack_op


@kernel(KERNEL_SIGNATURE)
def expert_silu_kernel() -> Any:
    """Compile silu(gate) * up with packing, over places; a task is some columns of one tile."""

    def expert_silu_op(op, thread, threads):
        silu = record_at(op, EXPERT_SILU)
        columns, packed = silu.columns, record_at(np.uintp(silu.packed), PACKED)
        routing = record_at(np.uintp(silu.routing), ROUTING)
        while True:
            start, width, first, last = _part_of_tile(routing, claim_task(op), columns)
            if width == 0:
                return
            for lane in range(width):
                offset = np.uintp((start + lane) * silu.stride * 4)
                gate = np.uintp(silu.gate) + offset
                silu_times_up(gate, np.uintp(silu.up) + offset, first, last)
                pack_lane(gate, start, lane, width, columns, first, last, packed, silu.forms)

    return expert_silu_op


@njit_inline
def _copy_record(source, target):
    for offset in range(0, OP_BYTES - 64, 64):  # without the line of the ticket, which other threads write
        store_vector(load_f32x16(source + np.uintp(offset)), target + np.uintp(offset))


@kernel(KERNEL_SIGNATURE)
def expert_matmul_kernel() -> Any:
    """Compile the matmul of all touched experts; a task is some groups of outputs of one expert, for all its rows."""

    def expert_matmul_op(op, thread, threads):
        # The tile functions read a MATMUL record: each thread keeps one, and points it to the expert in turn.
        record = np.uintp(record_at(op, EXPERT_MATMUL).records) + np.uintp(thread * OP_BYTES)
        _copy_record(op, record)
        experts, matmul = record_at(op, EXPERT_MATMUL), record_at(record, MATMUL)
        routing = record_at(np.uintp(experts.routing), ROUTING)
        crossover = record_at(np.uintp(matmul.packed), PACKED).crossover
        parts = (matmul.groups + matmul.most_groups - 1) // matmul.most_groups
        while True:
            task = claim_task(op)
            if task >= routing.touched_count * parts:
                return
            expert = load_i64(np.uintp(routing.touched) + np.uintp(task // parts * 8))
            first = task % parts * matmul.most_groups
            last = min(first + matmul.most_groups, matmul.groups)
            segment = np.uintp(routing.segments) + np.uintp(expert * 8)
            matmul.weights = np.uintp(experts.weights) + np.uintp(expert * experts.expert_bytes)
            matmul.rows = segment + np.uintp(8)
            start, end = load_i64(segment), load_i64(segment + np.uintp(8))
            run_tiles(record, matmul, first, last, start, end, widest_tile(end - start, crossover))

    return expert_matmul_op


@kernel(KERNEL_SIGNATURE)
def combine_kernel() -> Any:
    """Compile the weighted sum; a task is some columns of one row."""

    def combine_op(op, thread, threads):
        combine = record_at(op, COMBINE)
        routing, columns = record_at(np.uintp(combine.routing), ROUTING), combine.columns
        rows = load_i64(np.uintp(combine.rows))
        parts = _parts(columns)
        while True:
            task = claim_task(op)
            row = task // parts
            if row >= rows:
                return
            first = task % parts * _TASK_COLUMNS
            _combine_row(combine, routing, row, first, min(first + _TASK_COLUMNS, columns))

    return combine_op


@njit_inline
def _combine_row(combine, routing, row, first, last):
    """Write columns first..last-1 of one row: slots in ascending order, one fma each, then the shared expert."""
    columns, active = combine.columns, routing.active
    weights = np.uintp(routing.weights) + np.uintp(row * active * 4)
    places = np.uintp(routing.places) + np.uintp(row * active * 8)
    shared_weight = np.float32(1)
    if combine.shared_gate != 0:
        gate = load_f32(np.uintp(combine.shared_gate) + np.uintp(row * combine.shared_gate_stride * 4))
        shared_weight = np.float32(1) / (np.float32(1) + exp_f32(-gate)) if gate == gate else gate
    for column in range(first, last, 16):
        total = splat_f32x16(np.float32(0))
        for slot in range(active):
            place = load_i64(places + np.uintp(slot * 8))
            value = load_f32x16(np.uintp(combine.source) + np.uintp((place * columns + column) * 4))
            total = fma(splat_f32x16(load_f32(weights + np.uintp(slot * 4))), value, total)
        offset = np.uintp((row * columns + column) * 4)
        if combine.shared != 0:
            total = fma(splat_f32x16(shared_weight), load_f32x16(np.uintp(combine.shared) + offset), total)
        if combine.add != 0:
            total = load_f32x16(np.uintp(combine.output) + offset) + total
        store_vector(total, np.uintp(combine.output) + offset)
