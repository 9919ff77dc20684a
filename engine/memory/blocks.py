"""Blocks of the KV cache: which are free, and which cached ones are given up first.

BlockPool counts the references to one group's blocks; others decide who gets a block and which to keep. EvictionQueue
says which of the things kept goes first: the one used longest ago, weighed by the cost to make it again (GreedyDual).
"""

import heapq
from collections.abc import Hashable
from itertools import count
from typing import Generic, TypeVar


class BlockPool:
    """Hands out the block numbers 0 .. n_blocks - 1.

    A block that nothing refers to is either free, or cached: kept for a sequence that may want what it holds.
    """

    def __init__(self, n_blocks: int) -> None:
        assert n_blocks > 0
        self.n_blocks = n_blocks
        self.cached_blocks = 0
        self._free = list(reversed(range(n_blocks)))
        self._references = [0] * n_blocks
        self._is_kept = bytearray(n_blocks)

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    @property
    def available_blocks(self) -> int:
        """Blocks that a sequence could get: the cached ones would be given up for it."""
        return len(self._free) + self.cached_blocks

    def references(self, block: int) -> int:
        """How many sequences refer to a block."""
        return self._references[block]

    def take(self) -> int:
        """Return a free block, which has one reference from now on; there must be one."""
        block = self._free.pop()
        self._references[block] = 1
        return block

    def share(self, block: int) -> None:
        """Add a reference to a block that is in use or cached."""
        assert self._references[block] or self._is_kept[block], f"block {block} holds nothing"
        if self._references[block] == 0:
            self.cached_blocks -= 1
        self._references[block] += 1

    def release(self, block: int) -> bool:
        """Take a reference from a block; True if the block is cached now."""
        assert self._references[block], f"block {block} is released too often"
        self._references[block] -= 1
        if self._references[block]:
            return False
        return self._rest(block)

    def keep(self, block: int) -> None:
        """Cache a block, which is in use now, when its last reference goes."""
        assert self._references[block] and not self._is_kept[block]
        self._is_kept[block] = 1

    def drop(self, block: int) -> None:
        """Stop caching a block, now or later."""
        assert self._is_kept[block]
        self._is_kept[block] = 0
        if not self._references[block]:
            self.cached_blocks -= 1
            self._rest(block)

    def _rest(self, block: int) -> bool:
        if self._is_kept[block]:
            self.cached_blocks += 1
            return True
        self._free.append(block)
        return False


Item = TypeVar("Item", bound=Hashable)


class EvictionQueue(Generic[Item]):
    """A thing's rank is the clock when it was last used, plus its cost; the lowest rank goes first.

    The clock stands at the highest rank evicted so far, so what is not used grows old as others come and go. Every call
    takes O(log n): an outdated place in the heap is passed over when it comes up.
    """

    def __init__(self) -> None:
        self.clock = 0.0
        self._places: dict[Item, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, Item]] = []  # the number orders equal ranks by age
        self._numbers = count()

    def __contains__(self, item: Item) -> bool:
        return item in self._places

    def __len__(self) -> int:
        return len(self._places)

    def place(self, item: Item) -> tuple[float, int] | None:
        """How far a thing's rank is above the clock, and the number that orders equal ranks; None if it is not in."""
        place = self._places.get(item)
        return None if place is None else (place[0] - self.clock, place[1])

    def add(self, item: Item, cost: float, used_at: float | None = None) -> None:
        """Put a thing in its place, or in a new one; `used_at` is what the clock was at its last use, if not now."""
        place = ((self.clock if used_at is None else used_at) + cost, next(self._numbers))
        heapq.heappush(self._heap, (*place, item))
        self._places[item] = place
        if len(self._heap) > 2 * len(self._places) + 64:
            self._heap = [(*place, item) for item, place in self._places.items()]
            heapq.heapify(self._heap)

    def discard(self, item: Item) -> None:
        """Take a thing out, if it is in."""
        self._places.pop(item, None)

    def pop(self) -> Item:
        """Take out the thing that goes first; IndexError if there is none."""
        while True:
            rank, number, item = heapq.heappop(self._heap)
            if self._places.get(item) == (rank, number):
                del self._places[item]
                self.clock = max(self.clock, rank)
                return item
