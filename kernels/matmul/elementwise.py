"""Ops on each value of a row: the activation functions, and adding a bias.

Biases of matmuls that are added to finished sums: y[r, n] += b[n].

One float32 addition a value, whatever the number of rows and threads (law 1). Bytes a row: 8 * columns moved.

The elementwise part of gated feed-forward layers: act(gate) * up.

    silu(g) = g / (1 + exp(-g))
    gelu(g) = g / (1 + exp(-2 * u)) = g / 2 * (1 + tanh(u)),    u = sqrt(2 / pi) * (g + 0.044715 * g**3)

Source: Hendrycks and Gimpel, Gaussian Error Linear Units (2016); GELU is its approximation by tanh.
"""

import math
from typing import Any

import numpy as np

from kernels.build.jit import KERNEL_SIGNATURE, kernel, njit_inline
from kernels.run.program import claim_task, op_record, record_at
from kernels.simd.exp import exp_f32x16
from kernels.simd.vectors import fma, load_f32x16, load_i64, splat_f32x16, store_vector

SILU, GELU = range(2)
# -2 * u = g * (_LINEAR + _CUBIC * g**2)
_LINEAR = np.float32(-2 * math.sqrt(2 / math.pi))
_CUBIC = np.float32(-2 * math.sqrt(2 / math.pi) * 0.044715)


@njit_inline
def silu_times_up(gate, up, first, last):
    """Overwrite columns first..last-1 of gate."""
    zero, one = splat_f32x16(np.float32(0)), splat_f32x16(np.float32(1))
    for column in range(first, last, 16):
        offset = np.uintp(column * 4)
        g = load_f32x16(gate + offset)
        store_vector(g / (one + exp_f32x16(zero - g)) * load_f32x16(up + offset), gate + offset)


@njit_inline
def gelu_times_up(gate, up, first, last):
    """Overwrite columns first..last-1 of gate."""
    one, linear, cubic = splat_f32x16(np.float32(1)), splat_f32x16(_LINEAR), splat_f32x16(_CUBIC)
    for column in range(first, last, 16):
        offset = np.uintp(column * 4)
        g = load_f32x16(gate + offset)
        exponent = g * fma(g * g, cubic, linear)
        store_vector(g / (one + exp_f32x16(exponent)) * load_f32x16(up + offset), gate + offset)


@njit_inline
def activate(activation, gate, up, columns):
    """Overwrite a row of gate, float32 [columns], by SILU or GELU of it times up; columns: a multiple of 16."""
    if activation == GELU:
        gelu_times_up(gate, up, np.int64(0), columns)
    else:
        silu_times_up(gate, up, np.int64(0), columns)


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
