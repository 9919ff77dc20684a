"""The steps of attention on one tile and KV head: visible keys, softmax of a block, merging of blocks.

A thread's scratch begins with a TILE record, which holds what the steps share; arrays of float32 follow it:

    queries, outputs   [lanes, head_dim]      outputs are the running sums of weighted values
    scores             [lanes, 64]            of one block, then its weights
    state              [2, padded lanes]      running maxima and sums
    factors            [2, padded lanes]      what a merge multiplies the old and the new by
    results            [lanes, head_dim], then [2, padded lanes]: weighted values, maxima and sums of one block

Lanes are padded to 16. A block's results lie here, or where a part of a split tile leaves them (see attention.py).
"""

import numpy as np

from kernels.attention.kv_cache import BLOCK_TOKENS, CHUNK
from kernels.build.jit import njit_inline
from kernels.run.program import record_at
from kernels.simd.exp import exp_f32x16
from kernels.simd.vectors import (
    fma,
    load_f32,
    load_f32x16,
    load_i64,
    maximum,
    reduce_add,
    reduce_max,
    select_below,
    splat_f32x16,
    store_f32,
    store_vector,
)

TILE = np.dtype(
    [
        ("rows", "i8"),
        ("lanes", "i8"),
        ("padded", "i8"),
        ("group", "i8"),
        ("head_dim", "i8"),
        ("window", "i8"),
        ("position", "i8"),  # of the first row
        ("table", "u8"),  # address of the sequence's block table
        ("first_block", "i8"),
        ("end_block", "i8"),  # blocks that any row sees
        ("row_bytes", "i8"),  # from one row's queries to the next one's, in the step's array
        ("queries", "u8"),
        ("outputs", "u8"),
        ("scores", "u8"),
        ("state", "u8"),
        ("factors", "u8"),
        ("results", "u8"),
    ]
)
TILE_FLOATS = 64  # of scratch, for the record
SCORE_BYTES = BLOCK_TOKENS * 4  # of one lane
assert TILE.itemsize <= TILE_FLOATS * 4

_LOWEST = np.float32(np.finfo(np.float32).min)
_MINUS_INFINITY = np.float32(-np.inf)


def padded(lanes: int) -> int:
    """Lanes of arrays that hold one value a lane."""
    return -(-lanes // 16) * 16


def results_floats(lanes: int, head_dim: int) -> int:
    """Floats of the results of one block."""
    return lanes * head_dim + 2 * padded(lanes)


def tile_floats(lanes: int, head_dim: int) -> int:
    """Floats of scratch that a thread needs for tiles of this size."""
    arrays = lanes * (2 * head_dim + BLOCK_TOKENS) + 4 * padded(lanes) + results_floats(lanes, head_dim)
    return TILE_FLOATS + arrays


@njit_inline
def lay_out(scratch, rows, group, head_dim):
    """Write the sizes of a tile and the places of its arrays into the record."""
    tile = record_at(scratch, TILE)
    lanes = rows * group
    tile.rows, tile.lanes, tile.group, tile.head_dim = rows, lanes, group, head_dim
    tile.padded = (lanes + 15) // 16 * 16
    tile.queries = scratch + np.uintp(TILE_FLOATS * 4)
    tile.outputs = np.uintp(tile.queries) + np.uintp(lanes * head_dim * 4)
    tile.scores = np.uintp(tile.outputs) + np.uintp(lanes * head_dim * 4)
    tile.state = np.uintp(tile.scores) + np.uintp(lanes * SCORE_BYTES)
    tile.factors = np.uintp(tile.state) + np.uintp(tile.padded * 8)
    tile.results = np.uintp(tile.factors) + np.uintp(tile.padded * 8)


@njit_inline
def find_blocks(scratch, positions, tables, first_row, window):
    """Note where the tile's rows are in their sequence, and which blocks they see."""
    tile = record_at(scratch, TILE)
    tile.window = window
    tile.position = load_i64(np.uintp(positions) + np.uintp(first_row * 8))
    tile.table = np.uintp(load_i64(np.uintp(tables) + np.uintp(first_row * 8)))
    tile.first_block = 0 if window == 0 else max(tile.position + 1 - window, 0) // BLOCK_TOKENS
    tile.end_block = (tile.position + tile.rows - 1) // BLOCK_TOKENS + 1


@njit_inline
def visible(tile, row, block):
    """The places (begin, end) of a block that a row sees: begin..end-1."""
    after = tile.position + row + 1 - block * BLOCK_TOKENS
    begin = 0 if tile.window == 0 else min(max(after - tile.window, 0), BLOCK_TOKENS)
    return begin, min(max(after, 0), BLOCK_TOKENS)


@njit_inline
def begin_tile(scratch, query):
    """Take the queries of the first KV head's lanes at `query` over; begin with maxima of -inf and sums of 0."""
    tile = record_at(scratch, TILE)
    zero = splat_f32x16(np.float32(0))
    row_bytes = tile.group * tile.head_dim * 4
    for row in range(tile.rows):
        for offset in range(0, row_bytes, 64):
            value = load_f32x16(query + np.uintp(row * tile.row_bytes + offset))
            store_vector(value, np.uintp(tile.queries) + np.uintp(row * row_bytes + offset))
            store_vector(zero, np.uintp(tile.outputs) + np.uintp(row * row_bytes + offset))
    for offset in range(0, tile.padded * 4, 64):
        store_vector(splat_f32x16(_MINUS_INFINITY), np.uintp(tile.state) + np.uintp(offset))
        store_vector(zero, np.uintp(tile.state) + np.uintp(tile.padded * 4 + offset))


@njit_inline
def _hide(scores, begin, end):
    """Make the scores before `begin` and from `end` on -inf, in the chunks that hold places begin..end-1."""
    for place in range(begin // CHUNK * CHUNK, begin):
        store_f32(_MINUS_INFINITY, scores + np.uintp(place * 4))
    for place in range(end, (end + CHUNK - 1) // CHUNK * CHUNK):
        store_f32(_MINUS_INFINITY, scores + np.uintp(place * 4))


@njit_inline
def _largest(scores, first_chunk, end_chunk):
    largest = splat_f32x16(_MINUS_INFINITY)
    for chunk in range(first_chunk, end_chunk):
        largest = maximum(largest, load_f32x16(scores + np.uintp(chunk * CHUNK * 4)))
    return reduce_max(largest)


@njit_inline
def _weigh(scores, first_chunk, end_chunk, largest):
    """Turn scores into weights exp(score - largest); returns their sum."""
    reference = splat_f32x16(largest if largest > _MINUS_INFINITY else np.float32(0))
    total = splat_f32x16(np.float32(0))
    for chunk in range(first_chunk, end_chunk):
        place = scores + np.uintp(chunk * CHUNK * 4)
        weight = exp_f32x16(load_f32x16(place) - reference)
        store_vector(weight, place)
        total = total + weight
    return reduce_add(total)


@njit_inline
def softmax_block(scratch, results, block):
    """Turn each lane's scores into weights, and note its maximum and sum: (-inf, 0) where it sees nothing."""
    tile = record_at(scratch, TILE)
    group, scores = tile.group, np.uintp(tile.scores)
    maxima = results + np.uintp(tile.lanes * tile.head_dim * 4)
    sums = maxima + np.uintp(tile.padded * 4)
    # Two loops, so that no lane's exponentials wait for its maximum.
    for row in range(tile.rows):
        begin, end = visible(tile, row, block)
        first_chunk, end_chunk = begin // CHUNK, (end + CHUNK - 1) // CHUNK
        for lane in range(row * group, (row + 1) * group):
            place = scores + np.uintp(lane * SCORE_BYTES)
            if begin % CHUNK + end % CHUNK != 0:
                _hide(place, begin, end)
            store_f32(_largest(place, first_chunk, end_chunk), maxima + np.uintp(lane * 4))
    for row in range(tile.rows):
        begin, end = visible(tile, row, block)
        first_chunk, end_chunk = begin // CHUNK, (end + CHUNK - 1) // CHUNK
        for lane in range(row * group, (row + 1) * group):
            place, at = scores + np.uintp(lane * SCORE_BYTES), np.uintp(lane * 4)
            store_f32(_weigh(place, first_chunk, end_chunk, load_f32(maxima + at)), sums + at)


@njit_inline
def _merge_states(tile, maxima):
    """Merge a block's maxima and sums into the running ones, and note the factors of the old and of the new values."""
    after = np.uintp(tile.padded * 4)
    for lane in range(0, tile.padded, 16):
        at = np.uintp(lane * 4)
        state, block, factors = np.uintp(tile.state) + at, maxima + at, np.uintp(tile.factors) + at
        old_max, block_max = load_f32x16(state), load_f32x16(block)
        new_max = maximum(old_max, block_max)
        # Where nothing has been seen so far, both factors become exp(-inf) = 0.
        reference = select_below(new_max, splat_f32x16(_LOWEST), splat_f32x16(np.float32(0)), new_max)
        old_factor, block_factor = exp_f32x16(old_max - reference), exp_f32x16(block_max - reference)
        total = load_f32x16(state + after) * old_factor + load_f32x16(block + after) * block_factor
        store_vector(new_max, state)
        store_vector(total, state + after)
        store_vector(old_factor, factors)
        store_vector(block_factor, factors + after)


@njit_inline
def merge_block(scratch, results, block):
    """Merge a block's results into the running ones."""
    tile = record_at(scratch, TILE)
    head_bytes = tile.head_dim * 4
    _merge_states(tile, results + np.uintp(tile.lanes * head_bytes))
    for row in range(tile.rows):
        begin, end = visible(tile, row, block)
        if begin == end:
            continue
        for lane in range(row * tile.group, (row + 1) * tile.group):
            factor = np.uintp(tile.factors) + np.uintp(lane * 4)
            old_factor = splat_f32x16(load_f32(factor))
            block_factor = splat_f32x16(load_f32(factor + np.uintp(tile.padded * 4)))
            for offset in range(lane * head_bytes, (lane + 1) * head_bytes, 64):
                output = np.uintp(tile.outputs) + np.uintp(offset)
                old = load_f32x16(output) * old_factor
                store_vector(fma(load_f32x16(results + np.uintp(offset)), block_factor, old), output)


@njit_inline
def finish_tile(scratch, output):
    """Divide by the sums and write the outputs of the first KV head's lanes to `output`."""
    tile = record_at(scratch, TILE)
    head_bytes = tile.head_dim * 4
    for lane in range(tile.lanes):
        total = splat_f32x16(load_f32(np.uintp(tile.state) + np.uintp((tile.padded + lane) * 4)))
        target = output + np.uintp(lane // tile.group * tile.row_bytes + lane % tile.group * head_bytes)
        for offset in range(0, head_bytes, 64):
            value = load_f32x16(np.uintp(tile.outputs) + np.uintp(lane * head_bytes + offset))
            store_vector(value / total, target + np.uintp(offset))
