"""Sequences of keys, values and queries for the ops of attention."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernels.kv_cache import BLOCK_TOKENS, STEP

Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class Step:
    """The rows of one step: each is a position of a sequence with a block table."""

    positions: NDArray[np.int64]  # [rows]
    tables: NDArray[np.int32]  # [rows, blocks]
    tiles: NDArray[np.int64]  # [tiles, 2]: first row, number of rows

    def record(self) -> tuple[np.ndarray, object]:
        """The record that ops read, and what must live as long as it."""
        starts = (self.tables.ctypes.data + np.arange(len(self.tables)) * self.tables.strides[0]).astype(np.uint64)
        record = np.zeros(1, STEP)
        record["rows"], record["tiles"] = len(self.positions), len(self.tiles)
        record["positions"], record["tables"] = self.positions.ctypes.data, starts.ctypes.data
        record["tile_rows"] = self.tiles.ctypes.data
        return record, (starts, self)


def step_of(parts: Sequence[tuple[int, int, Sequence[int]]], rows_per_tile: int) -> Step:
    """A step of (first position, number of rows, block table) for each sequence, cut into tiles."""
    longest = max(len(table) for _, _, table in parts)
    positions: list[int] = []
    tables: list[list[int]] = []
    tiles: list[tuple[int, int]] = []
    for first, count, table in parts:
        for start in range(0, count, rows_per_tile):
            tiles.append((len(positions) + start, min(rows_per_tile, count - start)))
        positions += range(first, first + count)
        tables += [list(table) + [0] * (longest - len(table))] * count
    return Step(np.array(positions), np.array(tables, np.int32), np.array(tiles))


def random_cache(blocks: int, kv_heads: int, head_dim: int) -> tuple[Float32, Float32]:
    """(keys, values) in the layout of kv_cache.py."""
    random = np.random.default_rng(blocks * head_dim)
    keys = random.standard_normal((blocks, kv_heads, head_dim, BLOCK_TOKENS)).astype(np.float32)
    values = random.standard_normal((blocks, kv_heads, BLOCK_TOKENS, head_dim)).astype(np.float32)
    return keys, values
