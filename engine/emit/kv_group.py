"""What the attention layers of one window share: their part of a step's inputs, and the blocks of all of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.attention.attention import PART, PartPlan, Tile, max_parts
from kernels.attention.kv_cache import BLOCK_TOKENS, GROUP, KvType
from kernels.machine.memory import zeroed

Filled = tuple[list[int], list[Tile], list[list[int]]]  # rows of each sequence, tiles, block tables


class LayerCache(NamedTuple):
    """One layer's blocks: uint8 [n_blocks, kv_heads, bytes of a head's block] each."""

    keys: NDArray[np.uint8]
    values: NDArray[np.uint8]


@dataclass(slots=True, kw_only=True)
class KvGroupState:
    """Filled by the runner before each run; ops read it through the address of the record."""

    window: int
    n_blocks: int
    plan: PartPlan
    record: np.ndarray  # GROUP
    tables: NDArray[np.uint64]  # [max_rows]
    parts: np.ndarray  # PART
    caches: list[LayerCache] = field(default_factory=list)
    # Of the last step: what its inputs follow from, and its block tables, one after another, which `tables` points to.
    _filled: Filled | None = None
    _blocks: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))

    @classmethod
    def allocate(cls, plan: PartPlan, n_blocks: int, max_rows: int) -> "KvGroupState":
        """Make the inputs, and write their addresses into the record."""
        group = cls(
            window=plan.window,
            n_blocks=n_blocks,
            plan=plan,
            record=np.zeros(1, GROUP),
            tables=np.zeros(max_rows, np.uint64),
            parts=np.zeros(max_parts(max_rows, plan.threads), PART),
        )
        group.record["tables"] = group.tables.ctypes.data
        group.record["attention_parts"] = group.parts.ctypes.data
        return group

    def add_layer(self, kv_type: KvType) -> LayerCache:
        """Allocate one layer's blocks."""
        shape = (self.n_blocks, self.plan.kv_heads, kv_type.block_bytes(self.plan.head_dim))
        self.caches.append(LayerCache(*(zeroed(shape, np.uint8, huge_pages=False) for _ in range(2))))
        return self.caches[-1]

    def fill(self, spans: Sequence[tuple[int, int]], tables: Sequence[Sequence[int]]) -> None:
        """Fill for a step whose rows are those of (first position, number of rows), sequence after sequence.

        `tables`: the sequences' block tables. Where rows enter no other blocks than those of the step before did, all
        that is filled is the same, as it is in most steps that decode.
        """
        tiles = self.plan.tiles(spans)
        filled = ([count for _, count in spans], tiles, [*map(list, tables)])
        if filled == self._filled:
            return
        self._filled = filled
        self._fill_tables(spans, tables)
        parts = self.plan.parts(tiles)
        self.parts[: len(parts)] = parts
        self.record["parts"] = len(parts)

    def _fill_tables(self, spans: Sequence[tuple[int, int]], tables: Sequence[Sequence[int]]) -> None:
        self._blocks = np.array([block for table in tables for block in table], np.int32)
        address, addresses = self._blocks.ctypes.data, list[int]()
        for (position, count), table in zip(spans, tables, strict=True):
            assert len(table) * BLOCK_TOKENS >= position + count
            addresses += [address] * count
            address += len(table) * self._blocks.itemsize
        self.tables[: len(addresses)] = addresses

    def arrays_of(self, block: int) -> list[NDArray[np.uint8]]:
        """The places of a block: keys and values of each layer."""
        return [array[block] for layer in self.caches for array in layer]
