"""RMSNorm and packing in one pass: y = x / sqrt(mean(x**2) + epsilon) * weight, packed as a matmul's input.

Also the plain packing of rows that need no norm. The mean sums 16 fixed lanes by fma in ascending order, then a fixed
tree (law 3). Bytes a row: 4 * columns read, about 1.4 * columns written.
"""

import functools
from typing import Any

import numpy as np

from kernels.activations import pack_row
from kernels.jit import kernel
from kernels.program import claim_task, op_record, record_at
from kernels.simd import fma, load_f32x16, load_i64, reduce_add, splat_f32x16, store_vector

NORM = op_record(
    source="u8",  # float32 [rows, columns]
    gather="u8",  # int64 [rows]: which row of the source each output row is; 0: the same
    weight="u8",  # float32 [columns]
    epsilon="f4",
    columns="i8",
    rows="u8",  # address of the row count, int64
    scratch="u8",  # float32 [threads, columns]
    quads="u8",
    side="u8",
    floats="u8",
)
PACK = op_record(
    source="u8",  # float32 [rows, columns]
    columns="i8",
    rows="u8",  # address of the row count, int64
    quads="u8",
    side="u8",
    floats="u8",
)


@functools.cache
def norm_kernel() -> Any:
    """Compile RMSNorm with packing; a task is one row."""

    def norm_op(op, thread, threads):
        norm = record_at(op, NORM)
        columns, weight = norm.columns, np.uintp(norm.weight)
        rows = load_i64(np.uintp(norm.rows))
        scaled = np.uintp(norm.scratch) + np.uintp(thread * columns * 4)
        while True:
            row = claim_task(op)
            if row >= rows:
                return
            origin = row
            if norm.gather != 0:
                origin = load_i64(np.uintp(norm.gather) + np.uintp(row * 8))
            source = np.uintp(norm.source) + np.uintp(origin * columns * 4)
            squares = splat_f32x16(np.float32(0))
            for column in range(0, columns, 16):
                x = load_f32x16(source + np.uintp(column * 4))
                squares = fma(x, x, squares)
            mean = reduce_add(squares) / np.float32(columns)
            factor = splat_f32x16(np.float32(1) / np.sqrt(mean + norm.epsilon))
            for column in range(0, columns, 16):
                x = load_f32x16(source + np.uintp(column * 4))
                store_vector(x * factor * load_f32x16(weight + np.uintp(column * 4)), scaled + np.uintp(column * 4))
            pack_row(scaled, row, rows, columns, np.uintp(norm.quads), np.uintp(norm.side), np.uintp(norm.floats))

    return kernel(norm_op)


@functools.cache
def pack_kernel() -> Any:
    """Compile the plain packing; a task is one row."""

    def pack_op(op, thread, threads):
        pack = record_at(op, PACK)
        columns = pack.columns
        rows = load_i64(np.uintp(pack.rows))
        while True:
            row = claim_task(op)
            if row >= rows:
                return
            source = np.uintp(pack.source) + np.uintp(row * columns * 4)
            pack_row(source, row, rows, columns, np.uintp(pack.quads), np.uintp(pack.side), np.uintp(pack.floats))

    return kernel(pack_op)
