"""Rotary positions on queries and keys, and the writing of keys and values into their blocks.

For each pair (a, b) of a head and angle t = position * frequency: (a, b) -> (a cos t - b sin t, a sin t + b cos t).
Pairs are (2i, 2i + 1) (llama's GGUF order). Queries are also multiplied by 1 / sqrt(head_dim), attention's scale.
Source: Su et al., RoFormer (2021), section 3.4.2.
"""

import functools
from typing import Any

import numpy as np

from kernels.jit import kernel, njit_inline
from kernels.kv_cache import BLOCK_TOKENS, STEP
from kernels.program import claim_task, op_record, record_at
from kernels.simd import load_f32, load_i32, load_i64, store_f32

ROTARY = op_record(
    step="u8",  # address of the step record
    query="u8",  # float32 [rows, heads * head_dim], rotated in place
    key="u8",  # float32 [rows, kv_heads * head_dim]
    value="u8",  # float32 [rows, kv_heads * head_dim]
    heads="i8",
    kv_heads="i8",
    head_dim="i8",
    rotary_dim="i8",  # dimensions that turn; the rest stay
    scale="f4",
    angles="u8",  # float32 [context, rotary_dim]: cos, sin of each pair
    keys="u8",
    values="u8",  # the layer's blocks
)


@njit_inline
def _turned(source, angles, dimension, rotary_dim):
    """The rotated value of one dimension."""
    x = load_f32(source + np.uintp(dimension * 4))
    if dimension >= rotary_dim:
        return x
    pair = np.uintp(dimension // 2 * 8)
    cosine, sine = load_f32(angles + pair), load_f32(angles + pair + np.uintp(4))
    if dimension % 2 == 0:
        return x * cosine - load_f32(source + np.uintp(dimension * 4 + 4)) * sine
    return load_f32(source + np.uintp(dimension * 4 - 4)) * sine + x * cosine


@functools.cache
def rotary_kernel() -> Any:
    """Compile the op; a task is one row."""

    def rotary_op(op, thread, threads):
        rotary = record_at(op, ROTARY)
        step = record_at(np.uintp(rotary.step), STEP)
        heads, kv_heads, dim, turning = rotary.heads, rotary.kv_heads, rotary.head_dim, rotary.rotary_dim
        while True:
            row = claim_task(op)
            if row >= step.rows:
                return
            position = load_i64(np.uintp(step.positions) + np.uintp(row * 8))
            table = np.uintp(load_i64(np.uintp(step.tables) + np.uintp(row * 8)))
            block = np.int64(load_i32(table + np.uintp(position // BLOCK_TOKENS * 4)))
            place = position % BLOCK_TOKENS
            angles = np.uintp(rotary.angles) + np.uintp(position * turning * 4)
            for head in range(heads):
                query = np.uintp(rotary.query) + np.uintp((row * heads + head) * dim * 4)
                for even in range(0, dim, 2):
                    a, b = _turned(query, angles, even, turning), _turned(query, angles, even + 1, turning)
                    store_f32(a * rotary.scale, query + np.uintp(even * 4))
                    store_f32(b * rotary.scale, query + np.uintp(even * 4 + 4))
            for head in range(kv_heads):
                offset = np.uintp((row * kv_heads + head) * dim * 4)
                key, value = np.uintp(rotary.key) + offset, np.uintp(rotary.value) + offset
                home = (block * kv_heads + head) * dim * BLOCK_TOKENS
                for dimension in range(dim):
                    turned = _turned(key, angles, dimension, turning)
                    store_f32(turned, np.uintp(rotary.keys) + np.uintp((home + dimension * BLOCK_TOKENS + place) * 4))
                    x = load_f32(value + np.uintp(dimension * 4))
                    store_f32(x, np.uintp(rotary.values) + np.uintp((home + place * dim + dimension) * 4))

    return kernel(rotary_op)
