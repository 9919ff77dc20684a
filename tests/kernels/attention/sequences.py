"""Sequences of keys, values and queries for the ops of attention."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kernels.attention.attention import PART, PartPlan, max_parts, partial_floats
from kernels.attention.kv_cache import BLOCK_TOKENS, GROUP, STEP, KvType
from tests.kernels import reference

Float32 = NDArray[np.float32]
# (first position, number of rows, block table) of each sequence.
Sequences = Sequence[tuple[int, int, Sequence[int]]]


@dataclass(frozen=True)
class Step:
    """The rows of one step: each is a position of a sequence with a block table."""

    positions: NDArray[np.int64]  # [rows]
    tables: NDArray[np.int32]  # [rows, blocks]
    parts: np.ndarray  # PART

    def records(self) -> tuple[np.ndarray, np.ndarray, object]:
        """The records of step and group that ops read, and what must live as long as they."""
        starts = (self.tables.ctypes.data + np.arange(len(self.tables)) * self.tables.strides[0]).astype(np.uint64)
        step, group = np.zeros(1, STEP), np.zeros(1, GROUP)
        step["rows"], step["positions"] = len(self.positions), self.positions.ctypes.data
        group["tables"], group["parts"] = starts.ctypes.data, len(self.parts)
        group["attention_parts"] = self.parts.ctypes.data
        return step, group, (starts, self)

    def alone(self, row: int) -> "Step":
        """One row in a step of its own."""
        blocks = int(self.positions[row]) // BLOCK_TOKENS + 1
        parts = np.array([(0, 1, 0, blocks, 1, 0, 0)], PART)
        return Step(self.positions[row : row + 1], self.tables[row : row + 1], parts)

    def moved(self, places: NDArray[np.int64]) -> "Step":
        """The same sequences, with block i at place places[i]."""
        return replace(self, tables=places[self.tables].astype(np.int32))


def plan_for(heads: int, kv_heads: int, head_dim: int, threads: int = 1, window: int = 0) -> PartPlan:
    """A plan with room for the results of a few split tiles."""
    group = heads // kv_heads
    floats = partial_floats(group, kv_heads, head_dim, context=512, rows=16)
    return PartPlan(
        group=group, kv_heads=kv_heads, head_dim=head_dim, threads=threads, partial_floats=floats, window=window
    )


def step_of(sequences: Sequences, plan: PartPlan) -> Step:
    """A step of the sequences, cut into parts as the plan does."""
    longest = max(len(table) for _, _, table in sequences)
    positions: list[int] = []
    tables: list[list[int]] = []
    for first, count, table in sequences:
        positions += range(first, first + count)
        tables += [list(table) + [0] * (longest - len(table))] * count
    parts = plan.parts(plan.tiles([(first, count) for first, count, _ in sequences]))
    assert len(parts) <= max_parts(len(positions), plan.threads)
    return Step(np.array(positions), np.array(tables, np.int32), np.array(parts, PART))


@dataclass(frozen=True)
class Cache:
    """Blocks of keys and values: as numbers, [blocks, KV heads, 64, head_dim], and as a KV type holds them."""

    kv_type: KvType
    keys: Float32
    values: Float32
    packed_keys: NDArray[np.uint8]
    packed_values: NDArray[np.uint8]

    @classmethod
    def of(cls, kv_type: KvType, keys: Float32, values: Float32) -> "Cache":
        """Round the numbers to the type, and pack them."""
        return cls(
            kv_type,
            reference.kv_rounded(kv_type, keys),
            reference.kv_rounded(kv_type, values),
            reference.pack_keys(kv_type, keys),
            reference.pack_values(kv_type, values),
        )


def random_numbers(blocks: int, kv_heads: int, head_dim: int) -> tuple[Float32, Float32]:
    """Keys and values, [blocks, KV heads, 64, head_dim]."""
    random = np.random.default_rng(blocks * head_dim)
    keys, values = random.standard_normal((2, blocks, kv_heads, BLOCK_TOKENS, head_dim)).astype(np.float32)
    return keys, values
