"""Attention over blocks of keys at absolute positions, with online softmax (law 4).

For each query q of a head, over the keys k_s and values v_s with s <= its position:
    y = sum_s exp(q.k_s - max) v_s / sum_s exp(q.k_s - max)
q comes already multiplied by 1/sqrt(head_dim). Each block of 64 keys yields (max, sum, weighted values) alone; blocks
are merged in ascending order. A key beyond a query's position has weight exactly 0, so that queries computed together
give the bits of queries computed alone.

The heads of a GQA group, and up to `rows` neighbouring rows of one sequence, are lanes that share each load of a key or
value. A task is one tile (rows of one sequence) of one KV head. Source of the online softmax: Milakov and Gimelshein,
Online normalizer calculation for softmax (2018).
"""

import functools
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.extending import intrinsic

from kernels.exp import exp_f32, exp_f32x16
from kernels.jit import address, kernel, njit_inline
from kernels.kv_cache import BLOCK_TOKENS, STEP
from kernels.program import TILE_SIGNATURE, call_tile, claim_task, op_record, record_at
from kernels.simd import (
    F32,
    FLOATS_BY_LANES,
    I64,
    fused_multiply_add,
    keep_first,
    load,
    load_f32,
    load_f32x16,
    load_i32,
    load_i64,
    maximum,
    reduce_add,
    reduce_max,
    splat,
    splat_f32x16,
    store,
    store_f32,
    store_vector,
)

ATTENTION = op_record(
    step="u8",
    query="u8",  # float32 [rows, heads * head_dim], rotated and scaled
    output="u8",  # float32 [rows, heads * head_dim]
    heads="i8",
    kv_heads="i8",
    keys="u8",
    values="u8",  # the layer's blocks, see kv_cache.py
    scratch="u8",  # float32 [threads, scratch_floats]
    scratch_floats="i8",
    wide="u8",
    narrow="u8",  # addresses of the tile functions for full tiles and for single rows
    tile_rows="i8",  # rows of a full tile
)


def lanes_of(group: int, rows: int) -> int:
    """Queries that share one pass over the keys."""
    return group * rows


def rows_per_tile(group: int) -> int:
    """Rows of a full tile: as many as keep the lanes within 8."""
    return max(1, 8 // group)


def scratch_floats(group: int, head_dim: int) -> int:
    """Floats of scratch a thread needs: queries, outputs, scores, maxima and sums of each lane."""
    return lanes_of(group, rows_per_tile(group)) * (2 * head_dim + BLOCK_TOKENS + 4)


@intrinsic(prefer_literal=True)
def _weighted_sum(
    typingctx, weights, weight_stride, vectors, vector_stride, count, lanes, width, output, output_stride
):
    """For each lane: output[lane] = sum over i < count of weights[lane][i] * vectors[i], one fma each, ascending.

    `vectors` are `width` float32, vector_stride bytes apart; weight_stride and output_stride: bytes between lanes.
    """
    n_lanes, vector = lanes.literal_value, FLOATS_BY_LANES[width.literal_value].llvm
    weight_step, output_step = weight_stride.literal_value, output_stride.literal_value

    def codegen(context, builder, signature, arguments):
        weights, vectors, vector_stride, count, output = (arguments[i] for i in (0, 2, 3, 4, 7))
        sums = [cgutils.alloca_once(builder, vector) for _ in range(n_lanes)]
        for total in sums:
            builder.store(ir.Constant(vector, None), total)
        with cgutils.for_range(builder, count, intp=I64) as loop:
            shared = load(builder, builder.add(vectors, builder.mul(vector_stride, loop.index)), vector)
            base = builder.add(weights, builder.mul(loop.index, I64(4)))
            for lane, total in enumerate(sums):
                weight = load(builder, builder.add(base, I64(lane * weight_step)), F32)
                product = fused_multiply_add(builder, splat(builder, weight, vector.count), shared, builder.load(total))
                builder.store(product, total)
        for lane, total in enumerate(sums):
            store(builder, builder.load(total), builder.add(output, I64(lane * output_step)))
        return context.get_dummy_value()

    u, i = types.uintp, types.int64
    return types.none(u, weight_stride, u, u, i, lanes, width, u, output_stride), codegen


@njit_inline
def _softmax_block(scores, visible, state):
    """Turn 64 scores into weights exp(score - block maximum); put the block's maximum and sum at state[0], state[1]."""
    minus_infinity = splat_f32x16(np.float32(-np.inf))
    largest = minus_infinity
    for chunk in range(0, BLOCK_TOKENS, 16):
        place = scores + np.uintp(chunk * 4)
        kept = keep_first(load_f32x16(place), np.int32(visible - chunk), minus_infinity)
        store_vector(kept, place)
        largest = maximum(largest, kept)
    block_max = reduce_max(largest)
    # A block that a lane cannot see at all has weight 0, by way of exp(-inf).
    reference = block_max if block_max > np.float32(-np.inf) else np.float32(0)
    total = splat_f32x16(np.float32(0))
    for chunk in range(0, BLOCK_TOKENS, 16):
        place = scores + np.uintp(chunk * 4)
        weight = exp_f32x16(load_f32x16(place) - splat_f32x16(reference))
        store_vector(weight, place)
        total = total + weight
    store_f32(block_max, state)
    store_f32(reduce_add(total), state + np.uintp(4))


@njit_inline
def _merge_block(output, block_output, head_dim, state):
    """Merge a block into the running (max, sum) at state[2], state[3] and the running output."""
    block_max, block_sum = load_f32(state), load_f32(state + np.uintp(4))
    old_max, old_sum = load_f32(state + np.uintp(8)), load_f32(state + np.uintp(12))
    new_max = max(old_max, block_max)
    old_factor, block_factor = exp_f32(old_max - new_max), exp_f32(block_max - new_max)
    store_f32(new_max, state + np.uintp(8))
    store_f32(old_sum * old_factor + block_sum * block_factor, state + np.uintp(12))
    old_vector, block_vector = splat_f32x16(old_factor), splat_f32x16(block_factor)
    # Adding 0 turns -0 into +0: a sum that began with weights of 0 and one that did not must not differ.
    zero = splat_f32x16(np.float32(0))
    for dimension in range(0, head_dim, 16):
        offset = np.uintp(dimension * 4)
        new = (load_f32x16(block_output + offset) + zero) * block_vector
        store_vector(load_f32x16(output + offset) * old_vector + new, output + offset)


@njit_inline
def _query_of_lane(first_row, kv_head, lane, group, heads):
    """The index of a lane's query among all rows' heads: a row's group of heads stands side by side."""
    return (first_row + lane // group) * heads + kv_head * group + lane % group


@functools.cache
def attention_tile(group: int, rows: int, head_dim: int, width: int) -> Any:
    """Compile attention of `rows` rows for one KV head with `group` query heads; vectors of `width` floats."""
    lanes, block_floats = group * rows, head_dim * BLOCK_TOKENS
    head_bytes, score_bytes = head_dim * 4, BLOCK_TOKENS * 4

    def tile(op, scratch, kv_head, first_row):
        attention = record_at(op, ATTENTION)
        step = record_at(np.uintp(attention.step), STEP)
        # Scratch: per lane the query, then outputs of the block, scores, and state; the output grows in place.
        queries = np.uintp(scratch)
        block_outputs = queries + np.uintp(lanes * head_bytes)
        scores = block_outputs + np.uintp(lanes * head_bytes)
        states = scores + np.uintp(lanes * score_bytes)
        position = load_i64(np.uintp(step.positions) + np.uintp(first_row * 8))
        table = np.uintp(load_i64(np.uintp(step.tables) + np.uintp(first_row * 8)))
        zero = splat_f32x16(np.float32(0))
        for lane in range(lanes):
            at = _query_of_lane(first_row, kv_head, lane, group, attention.heads) * head_bytes
            for dimension in range(0, head_bytes, 64):
                value = load_f32x16(np.uintp(attention.query) + np.uintp(at + dimension))
                store_vector(value, queries + np.uintp(lane * head_bytes + dimension))
                store_vector(zero, np.uintp(attention.output) + np.uintp(at + dimension))
            store_f32(np.float32(-np.inf), states + np.uintp(lane * 16 + 8))
            store_f32(np.float32(0), states + np.uintp(lane * 16 + 12))
        last = position + rows - 1
        for block in range(last // BLOCK_TOKENS + 1):
            home = np.int64(load_i32(table + np.uintp(block * 4))) * attention.kv_heads + kv_head
            keys = np.uintp(attention.keys) + np.uintp(home * block_floats * 4)
            values = np.uintp(attention.values) + np.uintp(home * block_floats * 4)
            visible = min(last + 1 - block * BLOCK_TOKENS, BLOCK_TOKENS)
            for chunk in range(0, visible, width):
                _weighted_sum(
                    queries, head_bytes, keys + np.uintp(chunk * 4), np.uintp(score_bytes), head_dim,
                    lanes, width, scores + np.uintp(chunk * 4), score_bytes,
                )  # fmt: skip
            for lane in range(lanes):
                lane_visible = position + lane // group + 1 - block * BLOCK_TOKENS
                _softmax_block(scores + np.uintp(lane * score_bytes), lane_visible, states + np.uintp(lane * 16))
            for dimension in range(0, head_dim, width):
                _weighted_sum(
                    scores, score_bytes, values + np.uintp(dimension * 4), np.uintp(head_bytes), visible,
                    lanes, width, block_outputs + np.uintp(dimension * 4), head_bytes,
                )  # fmt: skip
            for lane in range(lanes):
                at = _query_of_lane(first_row, kv_head, lane, group, attention.heads) * head_bytes
                output = np.uintp(attention.output) + np.uintp(at)
                block_output = block_outputs + np.uintp(lane * head_bytes)
                _merge_block(output, block_output, head_dim, states + np.uintp(lane * 16))
        for lane in range(lanes):
            at = _query_of_lane(first_row, kv_head, lane, group, attention.heads) * head_bytes
            total = splat_f32x16(load_f32(states + np.uintp(lane * 16 + 12)))
            for dimension in range(0, head_bytes, 64):
                output = np.uintp(attention.output) + np.uintp(at + dimension)
                store_vector(load_f32x16(output) / total + zero, output)

    return kernel(tile, TILE_SIGNATURE)


@functools.cache
def attention_kernel() -> Any:
    """Compile the op that deals (tile, KV head) pairs to the threads."""

    def attention_op(op, thread, threads):
        attention = record_at(op, ATTENTION)
        step = record_at(np.uintp(attention.step), STEP)
        scratch = np.int64(attention.scratch) + thread * attention.scratch_floats * 4
        while True:
            task = claim_task(op)
            tile = task // attention.kv_heads
            if tile >= step.tiles:
                return
            entry = np.uintp(step.tile_rows) + np.uintp(tile * 16)
            first_row, rows = load_i64(entry), load_i64(entry + np.uintp(8))
            if rows == attention.tile_rows:
                call_tile(np.uintp(attention.wide), op, scratch, task % attention.kv_heads, first_row)
            else:
                for row in range(first_row, first_row + rows):
                    call_tile(np.uintp(attention.narrow), op, scratch, task % attention.kv_heads, row)

    return kernel(attention_op)


def tile_functions(group: int, head_dim: int, width: int) -> dict[str, int]:
    """Compile both tile functions; returns the op record's fields."""
    rows = rows_per_tile(group)
    wide = address(attention_tile(group, rows, head_dim, width))
    narrow = address(attention_tile(group, 1, head_dim, width))
    return {"wide": wide, "narrow": narrow, "tile_rows": rows}
