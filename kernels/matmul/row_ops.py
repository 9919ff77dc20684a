"""Ops on single rows: RMSNorm, packing as a matmul's input, adding a bias; and activation functions of gated layers.

    norm       y = x / sqrt(mean(x**2) + epsilon) * weight, packed; as plain float32 too, where that is wanted
    pack       packed as they are
    add_norm   x += norm(y): what a layer gave is normalized before it is added to the residual stream
    bias       y += b, on finished sums

    silu(g) = g / (1 + exp(-g))
    gelu(g) = g / (1 + exp(-2 * u)) = g / 2 * (1 + tanh(u)),    u = sqrt(2 / pi) * (g + 0.044715 * g**3)

A row's values do not depend on the number of rows and threads (law 1). A mean sums 16 fixed lanes by fma in ascending
order, then a fixed tree (law 3). Bytes a row: norm and pack read 4 * columns and write about 1.4 * columns, a bias
moves 8 * columns. Source of gelu, approximated by tanh: Hendrycks and Gimpel, Gaussian Error Linear Units (2016).
"""

import math
from typing import Any

import numpy as np

from kernels.build.jit import KERNEL_SIGNATURE, kernel, njit_inline
from kernels.matmul.activations import PACKED, pack_lane, tile_start, tile_width, widest_tile
from kernels.run.program import claim_task, op_record, record_at
from kernels.simd.exp import exp_f32x16
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
