"""Biases of matmuls that are added to finished sums: y[r, n] += b[n].

One float32 addition a value, whatever the number of rows and threads (law 1). Bytes a row: 8 * columns moved.
"""

from typing import Any

import numpy as np

from kernels.build.jit import KERNEL_SIGNATURE, kernel, njit_inline
from kernels.run.program import claim_task, op_record, record_at
from kernels.simd.vectors import load_f32x16, load_i64, store_vector

BIAS = op_record(
    target="u8",  # float32 [rows, columns]
    bias="u8",  # float32 [columns]
    columns="i8",  # a multiple of 16
    rows="u8",  # address of the row count, int64
)


@njit_inline
def add_bias(target, bias, columns):
    """Add a bias, float32 [columns], to one row; columns: a multiple of 16."""
    for column in range(0, columns, 16):
        offset = np.uintp(column * 4)
        store_vector(load_f32x16(target + offset) + load_f32x16(bias + offset), target + offset)


@kernel(KERNEL_SIGNATURE)
def bias_kernel() -> Any:
    """Compile the op; a task is one row."""

    def bias_op(op, thread, threads):
        record = record_at(op, BIAS)
        rows = load_i64(np.uintp(record.rows))
        while True:
            row = claim_task(op)
            if row >= rows:
                return
            target = np.uintp(record.target) + np.uintp(row * record.columns * 4)
            add_bias(target, np.uintp(record.bias), record.columns)

    return bias_op
