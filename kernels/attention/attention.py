"""Attention of a step's rows over the paged KV cache, with online softmax (law 4), in parts that threads share.

For each query q of a head at position p, over the keys k_s and values v_s with p - window < s <= p (all s <= p where
the window is 0):
    y = sum_s exp(q.k_s - max) v_s / sum_s exp(q.k_s - max)
q comes already multiplied by the attention's scale. Each block of 64 keys yields (max, sum, weighted values) alone;
blocks are merged in ascending order. A value that a query cannot see is never multiplied by, and a block of which it
sees nothing is never merged, so queries computed together give the bits of queries computed alone.

The rows of a step are cut into tiles of neighbouring rows of one sequence. The query heads of a GQA group in each row
of a tile are lanes that share the loads of keys and values. A task is one part of one tile, for one KV head.

Most tiles have one part. A tile is split where the step has too few tiles to keep all threads busy: its blocks are
shared out over several parts, each part leaves its blocks' results in `partials`, and the part that ends last merges
them all, block by block in the same order, so splitting moves no bit. The results of each block take memory, which is
bounded: tiles that find no room there stay whole. Source of the online softmax: Milakov and Gimelshein, Online
normalizer calculation for softmax (2018).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.attention.kv_cache import BLOCK_TOKENS, CHUNK, GROUP, STEP
from kernels.attention.sums import score_block, value_block
from kernels.attention.tile import (
    SCORE_BYTES,
    TILE,
    begin_tile,
    find_blocks,
    finish_tile,
    lay_out,
    merge_block,
    results_floats,
    softmax_block,
    tile_floats,
    visible,
)
from kernels.build.jit import KERNEL_SIGNATURE, kernel, njit_inline
from kernels.run.atomics import atomic_add, atomic_store
from kernels.run.program import claim_task, op_record, record_at
from kernels.simd.vectors import load_i32

ATTENTION = op_record(
    step="u8",
    group="u8",
    query="u8",  # float32 [rows, heads * head_dim], rotated and scaled
    output="u8",  # float32 [rows, heads * head_dim]
    heads="i8",
    kv_heads="i8",
    head_dim="i8",  # a multiple of 16
    window="i8",  # keys that a query sees, its own among them; 0: all
    keys="u8",
    values="u8",  # the layer's blocks, see kv_cache.py
    block_bytes="i8",  # of one head
    scratch="u8",  # float32 [threads, scratch_floats]
    scratch_floats="i8",
    partials="u8",  # float32: results of the blocks of split tiles
    counters="u8",  # int64 [split tiles, kv_heads], parts that are done; 0 between steps
)

# One part of a tile. A tile's parts cover the blocks that its rows see.
PART = np.dtype(
    [
        ("first_row", "i8"),
        ("rows", "i8"),  # of the tile
        ("first_block", "i8"),
        ("end_block", "i8"),
        ("parts", "i8"),  # of the tile
        ("counter", "i8"),  # which split tile this is
        # Where the tile's floats, [blocks, kv_heads, results_floats], would begin in `partials` if it had all blocks
        # from 0 on; below 0 where it has not.
        ("partial", "i8"),
    ]
)
_PART_BYTES = PART.itemsize
# Lanes of a full tile: a multiple of the 4 or 6 that share a load, and small beside the first-level cache.
_LANES = 24


def rows_per_tile(group: int) -> int:
    """Rows of a full tile."""
    return max(1, _LANES // group)


def scratch_floats(group: int, head_dim: int) -> int:
    """Floats of scratch a thread needs, in whole cache lines."""
    return -(-tile_floats(group * rows_per_tile(group), head_dim) // 16) * 16


@njit_inline
def _block_at(attention, tile, block, kv_head):
    """Bytes before a block of one head, in the layer's keys and in its values."""
    number = np.int64(load_i32(np.uintp(tile.table) + np.uintp(block * 4)))
    return (number * attention.kv_heads + kv_head) * attention.block_bytes


@njit_inline
def _results_of(attention, tile, part, block, kv_head):
    """Where a block's results lie: in the thread's own scratch, or in the partials of a split tile."""
    if part.parts == 1:
        return np.uintp(tile.results)
    floats = tile.lanes * tile.head_dim + 2 * tile.padded
    at = part.partial + (block * attention.kv_heads + kv_head) * floats
    return np.uintp(attention.partials) + np.uintp(at * 4)


@njit_inline
def _ends_last(attention, part, kv_head):
    """Tell whether all other parts of the tile are done; then the counter is 0 again."""
    counter = np.uintp(attention.counters) + np.uintp((part.counter * attention.kv_heads + kv_head) * 8)
    last = atomic_add(counter, 1) == part.parts - 1
    if last:
        atomic_store(0, counter)
    return last


@njit_inline
def _begin(attention, step, group, part, kv_head, scratch):
    """Prepare a thread's scratch for a part of a tile; returns the bytes before its first query."""
    shared = attention.heads // attention.kv_heads
    lay_out(scratch, part.rows, shared, attention.head_dim)
    find_blocks(scratch, step.positions, group.tables, part.first_row, attention.window)
    record_at(scratch, TILE).row_bytes = attention.heads * attention.head_dim * 4
    first_query = np.uintp((part.first_row * attention.heads + kv_head * shared) * attention.head_dim * 4)
    begin_tile(scratch, np.uintp(attention.query) + first_query)
    return first_query


@njit_inline
def _merge_all(attention, part, kv_head, scratch):
    """Merge the blocks of all parts of a tile."""
    tile = record_at(scratch, TILE)
    for block in range(tile.first_block, tile.end_block):
        merge_block(scratch, _results_of(attention, tile, part, block, kv_head), block)


@kernel(KERNEL_SIGNATURE)
def attention_kernel(kind: int, tier: int) -> Any:
    """Compile the op for a type of keys and values (KvType.number); vectors and conversions are the tier's."""

    def attention_op(op, thread, threads):
        attention = record_at(op, ATTENTION)
        step, group = record_at(np.uintp(attention.step), STEP), record_at(np.uintp(attention.group), GROUP)
        kv_heads, head_dim = attention.kv_heads, attention.head_dim
        scratch = np.uintp(attention.scratch) + np.uintp(thread * attention.scratch_floats * 4)
        tile = record_at(scratch, TILE)
        while True:
            task = claim_task(op)
            kv_head = task // group.parts
            if kv_head >= kv_heads:
                return
            part = record_at(np.uintp(group.attention_parts) + np.uintp(task % group.parts * _PART_BYTES), PART)
            first_query = _begin(attention, step, group, part, kv_head, scratch)
            for block in range(max(tile.first_block, part.first_block), min(tile.end_block, part.end_block)):
                home = _block_at(attention, tile, block, kv_head)
                keys, values = np.uintp(attention.keys) + np.uintp(home), np.uintp(attention.values) + np.uintp(home)
                distance = _block_at(attention, tile, min(block + 1, tile.end_block - 1), kv_head) - home
                results = _results_of(attention, tile, part, block, kv_head)
                lowest, first_end = visible(tile, 0, block)
                last_begin, highest = visible(tile, tile.rows - 1, block)
                score_block(
                    np.uintp(tile.queries), tile.lanes, keys, distance, head_dim,
                    lowest // CHUNK, (highest + CHUNK - 1) // CHUNK, np.uintp(tile.scores), kind, tier,
                )  # fmt: skip
                softmax_block(scratch, results, block)
                # Rows that see different keys take them one row at a time.
                pieces = 1 if lowest == last_begin and first_end == highest else tile.rows
                lanes = tile.lanes // pieces
                for piece in range(pieces):
                    begin, end = visible(tile, piece, block)
                    value_block(
                        np.uintp(tile.scores) + np.uintp(piece * lanes * SCORE_BYTES), lanes, values, distance,
                        head_dim, begin, end, results + np.uintp(piece * lanes * head_dim * 4), kind, tier,
                    )  # fmt: skip
                if part.parts == 1:
                    merge_block(scratch, results, block)
            if part.parts > 1:
                if not _ends_last(attention, part, kv_head):
                    continue
                _merge_all(attention, part, kv_head, scratch)
            finish_tile(scratch, np.uintp(attention.output) + first_query)

    return attention_op


# The first row, how many rows, the first block that they see, the end of these blocks.
Tile = tuple[int, int, int, int]
# Values of one record of a part, in the order of its fields.
Part = tuple[int, int, int, int, int, int, int]

_TASKS_PER_THREAD = 4  # so that threads that are late do not hold up the others for long
_MIN_BLOCKS = 2  # of a part; a block takes about a microsecond
_MAX_PARTIAL_FLOATS = 16 << 20


def partial_floats(group: int, kv_heads: int, head_dim: int, context: int, rows: int) -> int:
    """Floats for the results of split tiles: enough for `rows` single rows at the context's end, at most 64 MiB."""
    blocks = -(-context // BLOCK_TOKENS)
    return min(rows * blocks * kv_heads * results_floats(group, head_dim), _MAX_PARTIAL_FLOATS)


def max_parts(rows: int, threads: int) -> int:
    """The most parts that a step of so many rows is cut into."""
    return 2 * rows + threads * _TASKS_PER_THREAD


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPlan:
    """Cuts steps for one model, a number of threads, and room for the results of split tiles."""

    group: int
    kv_heads: int
    head_dim: int
    threads: int
    partial_floats: int
    window: int = 0  # positions that a row sees, its own among them; 0: all

    def parts(self, tiles: Sequence[Tile]) -> list[Part]:
        """Cut a step's tiles."""
        parts: list[Part] = []
        work = sum(rows * (end - first) for _, rows, first, end in tiles) * self.kv_heads
        share, split, used = work / (self.threads * _TASKS_PER_THREAD), 0, 0
        for first_row, rows, first, end in tiles:
            blocks = end - first
            size = max(_MIN_BLOCKS, -int(-share // rows)) if self.threads > 1 else blocks
            block_floats = self.kv_heads * results_floats(rows * self.group, self.head_dim)
            if size >= blocks or used + blocks * block_floats > self.partial_floats:
                parts.append((first_row, rows, first, end, 1, 0, 0))
                continue
            starts, partial = range(first, end, size), used - first * block_floats
            parts += [(first_row, rows, at, min(at + size, end), len(starts), split, partial) for at in starts]
            split, used = split + 1, used + blocks * block_floats
        return parts

    def tiles(self, sequences: Sequence[tuple[int, int]]) -> list[Tile]:
        """Cut a step whose rows are those of (first position, number of rows), sequence after sequence."""
        tiles: list[Tile] = []
        row, full = 0, rows_per_tile(self.group)
        for position, count in sequences:
            for start in range(0, count, full):
                rows, at = min(full, count - start), position + start
                unseen = max(at + 1 - self.window, 0) if self.window else 0  # positions
                tiles.append((row + start, rows, unseen // BLOCK_TOKENS, (at + rows - 1) // BLOCK_TOKENS + 1))
            row += count
        return tiles
