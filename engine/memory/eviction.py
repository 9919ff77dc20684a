"""Which of the things kept goes first: what was used longest ago, weighed by the cost to make it again (GreedyDual)."""

import heapq
from collections.abc import Hashable
from itertools import count
from typing import Generic, TypeVar

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
