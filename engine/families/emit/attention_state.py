"""Attention layers as memory sees them: the shape of a layer, the layers that share block tables, and their blocks."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from kernels.attention.attention import PART, PartPlan, Tile, max_parts, partial_floats, scratch_floats
from kernels.attention.kv_cache import BLOCK_TOKENS, GROUP, KvType
from kernels.machine.memory import zeroed

Filled = tuple[list[int], list[Tile], list[list[int]]]  # rows of each sequence, tiles, block tables


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """One layer's attention."""

    heads: int  # of queries
    kv_heads: int  # each is shared by heads / kv_heads heads of queries
    key_dim: int  # values of a head of queries and keys
    value_dim: int  # values of a head of values and of outputs
    scale: float  # of queries
    window: int = 0  # positions that a row sees, its own among them; 0: all

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.heads // self.kv_heads

    @property
    def head_dim(self) -> int:
        """The one size of heads that the kernels of attention know."""
        assert self.key_dim == self.value_dim, "no kernel has keys and values of different lengths"
        return self.key_dim

    def key_bytes(self, kv_type: KvType) -> int:
        """Bytes of one block of the layer's keys."""
        return self.kv_heads * kv_type.block_bytes(self.key_dim)

    def value_bytes(self, kv_type: KvType) -> int:
        """Bytes of one block of the layer's values."""
        return self.kv_heads * kv_type.block_bytes(self.value_dim)


class KvLayers(NamedTuple):
    """The attention layers that share block tables, and what one block holds of all of them together."""

    layers: int
    window: int  # positions that a row sees, its own among them; 0: all
    stride: int  # positions that one entry stands for: 1, or more where keys are compressed over positions
    key_bytes: int
    value_bytes: int  # 0 where one vector is both key and value

    @property
    def block_bytes(self) -> int:
        """Bytes of one block in all these layers."""
        return self.key_bytes + self.value_bytes

    @property
    def block_positions(self) -> int:
        """Positions that one block covers."""
        return BLOCK_TOKENS * self.stride

    def blocks(self, positions: int) -> int:
        """Blocks that so many positions take, from the beginning of a block."""
        return -(-positions // self.block_positions)


def by_window(shapes: Iterable[AttentionShape]) -> list[list[AttentionShape]]:
    """Layers that can share block tables, those that see all positions first: the order of a model's tables."""
    groups: defaultdict[int, list[AttentionShape]] = defaultdict(list)
    for shape in shapes:
        groups[shape.window].append(shape)
    return [groups[window] for window in sorted(groups)]


def plain_kv_layers(shapes: Iterable[AttentionShape], kv_type: KvType) -> tuple[KvLayers, ...]:
    """The groups of layers that keep a key and a value of each position."""
    return tuple(
        KvLayers(
            layers=len(group),
            window=group[0].window,
            stride=1,
            key_bytes=sum(shape.key_bytes(kv_type) for shape in group),
            value_bytes=sum(shape.value_bytes(kv_type) for shape in group),
        )
        for group in by_window(shapes)
    )


class LayerCache(NamedTuple):
    """One layer's blocks: uint8 [n_blocks, bytes of a block of all its KV heads] each."""

    keys: NDArray[np.uint8]
    values: NDArray[np.uint8]


@dataclass(slots=True, kw_only=True)
class KvGroupState:
    """What the layers of one group share: their part of a step's inputs, and the blocks of all of them.

    Filled by the runner before each run; ops read it through the address of the record.
    """

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
    def allocate(cls, plan: PartPlan, n_blocks: int, max_rows: int) -> Self:
        """Make the inputs, and write their addresses into the record."""
        group = cls(
            n_blocks=n_blocks,
            plan=plan,
            record=np.zeros(1, GROUP),
            tables=np.zeros(max_rows, np.uint64),
            parts=np.zeros(max_parts(max_rows, plan.threads), PART),
        )
        group.record["tables"] = group.tables.ctypes.data
        group.record["attention_parts"] = group.parts.ctypes.data
        return group

    @property
    def window(self) -> int:
        """Positions that a row sees, its own among them; 0: all."""
        return self.plan.window

    @property
    def block_bytes(self) -> int:
        """Bytes of one block in all layers."""
        return sum(array[0].nbytes for array in self._arrays)

    def add_layer(self, key_bytes: int, value_bytes: int) -> LayerCache:
        """Allocate one layer's blocks, of so many bytes."""
        keys, values = (
            zeroed((self.n_blocks, nbytes), np.uint8, huge_pages=False) for nbytes in (key_bytes, value_bytes)
        )
        self.caches.append(LayerCache(keys, values))
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

    @property
    def _arrays(self) -> list[NDArray[np.uint8]]:
        """Keys and values of each layer."""
        return [array for layer in self.caches for array in layer]

    def arrays_of(self, block: int) -> list[NDArray[np.uint8]]:
        """The places of a block: keys and values of each layer."""
        return [array[block] for array in self._arrays]


@dataclass(slots=True, kw_only=True)
class AttentionState:
    """The memory that attention works in, one for all layers, and the groups that share block tables."""

    groups: tuple[KvGroupState, ...]
    scratch: NDArray[np.float32]  # [threads, floats]
    partials: NDArray[np.float32]
    counters: NDArray[np.int64]

    @classmethod
    def allocate(
        cls,
        shapes: Iterable[AttentionShape],
        n_blocks: Sequence[int],
        *,
        threads: int,
        context_length: int,
        max_rows: int,
    ) -> Self:
        """Make room for layers of these shapes; n_blocks: of each group. Layers of a group have heads of one shape."""
        plans = []
        for first, *others in by_window(shapes):
            assert all((shape.group, shape.kv_heads) == (first.group, first.kv_heads) for shape in others)
            assert all(shape.head_dim == first.head_dim for shape in others)
            plans.append(
                PartPlan(
                    group=first.group,
                    kv_heads=first.kv_heads,
                    head_dim=first.head_dim,
                    threads=threads,
                    partial_floats=partial_floats(
                        first.group, first.kv_heads, first.head_dim, context_length, max_rows
                    ),
                    window=first.window,
                )
            )
        floats = max(scratch_floats(plan.group, plan.head_dim) for plan in plans)
        return cls(
            groups=tuple(
                KvGroupState.allocate(plan, count, max_rows) for plan, count in zip(plans, n_blocks, strict=True)
            ),
            scratch=zeroed((threads, floats), np.float32),
            partials=zeroed((max(plan.partial_floats for plan in plans),), np.float32),
            counters=np.zeros(max_rows * max(plan.kv_heads for plan in plans), np.int64),
        )

    def group(self, window: int) -> KvGroupState:
        """The group of a window."""
        return next(group for group in self.groups if group.window == window)
