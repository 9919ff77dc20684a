"""RMSNorm and packing in one pass: y = x / sqrt(mean(x**2) + epsilon) * weight, packed as a matmul's input.

The normalized rows can be had as plain float32 too. Also the plain packing of rows that need no norm, and the norm of
what a layer gave before it is added to the residual stream: x += norm(y). The mean sums 16 fixed lanes by fma in
ascending order, then a fixed tree (law 3). Bytes a row: 4 * columns read, about 1.4 * columns written.
"""

from typing import Any

import numpy as np

from kernels.build.jit import KERNEL_SIGNATURE, kernel, njit_inline
from kernels.matmul.activations import PACKED, pack_lane, tile_start, tile_width, widest_tile
from kernels.run.program import claim_task, op_record, record_at
from kernels.simd.vectors import fma, load_f32x16, load_i64, reduce_add, splat_f32x16, store_vector

NORM = op_record(
    source="u8",  # float32 [rows, columns]
    gather="u8",  # int64 [rows]: which row of the source each output row is; 0: the same
    weight="u8",  # float32 [columns]
    epsilon="f4",
    columns="i8",
    rows="u8",  # address of the row count, int64
    scratch="u8",  # float32 [threads, columns]
    output="u8",  # float32 [rows, output_stride]: the normalized rows; 0: not wanted
    output_stride="i8",
    packed="u8",  # address of a PACKED record
    forms="i8",
)
PACK = op_record(
    source="u8",  # float32 [rows, columns]
    columns="i8",
    rows="u8",  # address of the row count, int64
    packed="u8",  # address of a PACKED record
    forms="i8",
)
ADD_NORM = op_record(
    source="u8",  # float32 [rows, columns]; overwritten by its norm
    target="u8",  # float32 [rows, columns]
    weight="u8",  # float32 [columns]
    epsilon="f4",
    columns="i8",
    rows="u8",  # address of the row count, int64
)

# Columns of one task of the plain packing.
PACK_COLUMNS = 512


@njit_inline
def normalize(source, weight, columns, epsilon, target):
    """Write one normalized row; the target may be the source."""
    squares = splat_f32x16(np.float32(0))
    for column in range(0, columns, 16):
        x = load_f32x16(source + np.uintp(column * 4))
        squares = fma(x, x, squares)
    mean = reduce_add(squares) / np.float32(columns)
    factor = splat_f32x16(np.float32(1) / np.sqrt(mean + epsilon))
    for column in range(0, columns, 16):
        offset = np.uintp(column * 4)
        store_vector(load_f32x16(source + offset) * factor * load_f32x16(weight + offset), target + offset)


@kernel(KERNEL_SIGNATURE)
def norm_kernel() -> Any:
    """Compile RMSNorm with packing; a task is one tile."""

    def norm_op(op, thread, threads):
        norm = record_at(op, NORM)
        columns, weight = norm.columns, np.uintp(norm.weight)
        packed = record_at(np.uintp(norm.packed), PACKED)
        rows = load_i64(np.uintp(norm.rows))
        widest = widest_tile(rows, packed.crossover)
        scaled = np.uintp(norm.scratch) + np.uintp(thread * columns * 4)
        while True:
            start = tile_start(claim_task(op), rows, widest)
            if start >= rows:
                return
            width = tile_width(start, rows, widest)
            for lane in range(width):
                origin = start + lane
                if norm.gather != 0:
                    origin = load_i64(np.uintp(norm.gather) + np.uintp(origin * 8))
                source = np.uintp(norm.source) + np.uintp(origin * columns * 4)
                if norm.output != 0:
                    scaled = np.uintp(norm.output) + np.uintp((start + lane) * norm.output_stride * 4)
                normalize(source, weight, columns, norm.epsilon, scaled)
                pack_lane(scaled, start, lane, width, columns, np.int64(0), columns, packed, norm.forms)

    return norm_op


@kernel(KERNEL_SIGNATURE)
def add_norm_kernel() -> Any:
    """Compile the op that adds normalized rows to others; a task is one row."""

    def add_norm_op(op, thread, threads):
        norm = record_at(op, ADD_NORM)
        columns = norm.columns
        rows = load_i64(np.uintp(norm.rows))
        while True:
            row = claim_task(op)
            if row >= rows:
                return
            offset = np.uintp(row * columns * 4)
            source, target = np.uintp(norm.source) + offset, np.uintp(norm.target) + offset
            normalize(source, np.uintp(norm.weight), columns, norm.epsilon, source)
            for column in range(0, columns, 16):
                at = np.uintp(column * 4)
                store_vector(load_f32x16(target + at) + load_f32x16(source + at), target + at)

    return add_norm_op


@kernel(KERNEL_SIGNATURE)
def pack_kernel() -> Any:
    """Compile the plain packing; a task is some columns of one tile."""

    def pack_op(op, thread, threads):
        pack = record_at(op, PACK)
        columns = pack.columns
        packed = record_at(np.uintp(pack.packed), PACKED)
        rows = load_i64(np.uintp(pack.rows))
        widest = widest_tile(rows, packed.crossover)
        parts = (columns + PACK_COLUMNS - 1) // PACK_COLUMNS
        while True:
            task = claim_task(op)
            start = tile_start(task // parts, rows, widest)
            if start >= rows:
                return
            width = tile_width(start, rows, widest)
            first = task % parts * PACK_COLUMNS
            last = min(first + PACK_COLUMNS, columns)
            for lane in range(width):
                source = np.uintp(pack.source) + np.uintp((start + lane) * columns * 4)
                pack_lane(source, start, lane, width, columns, first, last, packed, pack.forms)

    return pack_op
