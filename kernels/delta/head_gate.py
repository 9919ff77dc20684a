"""Heads times their gates, packed as a matmul's input: what ends gated attention and Gated DeltaNet.

    y[h] = x[h] * sigmoid(gate[h])                    without a norm's weight
    y[h] = rmsnorm(x[h]) * weight * silu(gate[h])     with it

Source: Yang, Kautz and Hatamizadeh, Gated Delta Networks (2024), for the second. Bytes a row: 8 * columns read, about
5.4 * columns written.
"""

import math
from typing import Any

import numpy as np

from kernels.build.jit import KERNEL_SIGNATURE, kernel, njit_inline
from kernels.matmul.activations import PACKED, pack_lane, tile_start, tile_width, widest_tile
from kernels.matmul.row_ops import normalize, silu_times_up
from kernels.quant.block256 import VALUES
from kernels.run.program import claim_task, op_record, record_at
from kernels.simd.exp import exp_f32x16
from kernels.simd.vectors import fma, load_f32x16, load_i64, splat_f32x16, store_vector

HEAD_GATE = op_record(
    source="u8",  # float32 [rows, columns], overwritten
    gate="u8",  # float32: the first gate of row 0; with a norm overwritten
    gate_row_bytes="i8",
    gate_head_bytes="i8",
    head_dim="i8",
    weight="u8",  # float32 [head_dim]; 0: no norm
    epsilon="f4",
    columns="i8",
    task_columns="i8",  # as task_columns() gives them
    rows="u8",  # address of the row count, int64
    packed="u8",  # address of a PACKED record
    forms="i8",
)


def task_columns(head_dim: int) -> int:
    """Return the columns of a task: whole heads and whole blocks of every packed form, 512 or a little more."""
    unit = math.lcm(head_dim, VALUES)
    return -(-512 // unit) * unit


@njit_inline
def _sigmoid_times(gate, target, dim):
    """target *= sigmoid(gate); a gate that is not finite stays visible."""
    zero, one = splat_f32x16(np.float32(0)), splat_f32x16(np.float32(1))
    for offset in range(0, dim * 4, 64):
        g, place = load_f32x16(gate + np.uintp(offset)), target + np.uintp(offset)
        store_vector(fma(g, zero, load_f32x16(place) / (one + exp_f32x16(zero - g))), place)


@njit_inline
def _normalize_times_silu(gate, target, weight, dim, epsilon):
    """target = norm(target) * silu(gate)."""
    normalize(target, weight, dim, epsilon, target)
    silu_times_up(gate, target, np.int64(0), dim)
    for offset in range(0, dim * 4, 64):
        store_vector(load_f32x16(gate + np.uintp(offset)), target + np.uintp(offset))


@kernel(KERNEL_SIGNATURE)
def head_gate_kernel() -> Any:
    """Compile the op; a task is some heads of one tile."""

    def head_gate_op(op, thread, threads):
        gating = record_at(op, HEAD_GATE)
        columns, dim, weight = gating.columns, gating.head_dim, np.uintp(gating.weight)
        packed = record_at(np.uintp(gating.packed), PACKED)
        rows = load_i64(np.uintp(gating.rows))
        widest = widest_tile(rows, packed.crossover)
        parts = (columns + gating.task_columns - 1) // gating.task_columns
        while True:
            task = claim_task(op)
            start = tile_start(task // parts, rows, widest)
            if start >= rows:
                return
            width = tile_width(start, rows, widest)
            first = task % parts * gating.task_columns
            last = min(first + gating.task_columns, columns)
            for lane in range(width):
                source = np.uintp(gating.source) + np.uintp((start + lane) * columns * 4)
                gates = np.uintp(gating.gate) + np.uintp((start + lane) * gating.gate_row_bytes)
                for column in range(first, last, dim):
                    head = source + np.uintp(column * 4)
                    gate = gates + np.uintp(column // dim * gating.gate_head_bytes)
                    if weight != 0:
                        _normalize_times_silu(gate, head, weight, dim, gating.epsilon)
                    else:
                        _sigmoid_times(gate, head, dim)
                pack_lane(source, start, lane, width, columns, first, last, packed, gating.forms)

    return head_gate_op
