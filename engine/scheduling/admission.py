"""The queue of those that wait for a lane: in what order they get one."""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from engine.sequence import Sequence

AGEING = 16  # later requests that a step of priority is worth
PRIORITY_LIMIT = 100  # priorities beyond are taken for it, so that no wait is without end


class WaitingQueue:
    """Gives out those that wait in order of rank, callers in turn; no clock.

    The rank of a request is its number in order of arrival, plus AGEING for each step of priority. Where several
    callers wait, each lane that a caller holds counts as `turn` places more, so that the caller with the fewest lanes
    is next, and among equals the lowest rank.

    The bound of starvation: a request is overtaken by a later one only if that arrived less than
    AGEING * (difference of priorities, at most 2 * PRIORITY_LIMIT) + turn * (lanes that its caller holds) places after
    it. So at most that many are admitted before it beyond those that were there when it came.
    """

    def __init__(self, turn: int) -> None:
        """`turn`: what a lane counts in the comparison of callers; as many as can wait makes turns strict."""
        self._turn = turn
        self._arrived = 0
        self._by_caller: dict[bytes, list[Sequence]] = {}  # each in order of rank; no list is empty

    def __len__(self) -> int:
        return sum(map(len, self._by_caller.values()))

    def __iter__(self) -> Iterator[Sequence]:
        return chain.from_iterable(self._by_caller.values())

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence; one that was here before gets its old place."""
        if sequence.rank is None:
            self._arrived += 1
            priority = max(-PRIORITY_LIMIT, min(sequence.request.priority, PRIORITY_LIMIT))
            # The number of arrival tells equal ranks apart, so that the order is total.
            sequence.rank = (self._arrived + AGEING * priority, self._arrived)
        insort(self._by_caller.setdefault(sequence.request.caller, []), sequence, key=rank_of)

    def discard(self, sequence: Sequence) -> None:
        """Take a sequence out, if it is in."""
        caller = sequence.request.caller
        waiting = self._by_caller.get(caller, [])
        if sequence in waiting:
            waiting.remove(sequence)
            if not waiting:
                del self._by_caller[caller]

    def next(self, running: Iterable[Sequence], may_start: Callable[[Sequence], bool]) -> Sequence | None:
        """The one whose turn it is among those that may start; None if there is none."""
        held = Counter(sequence.request.caller for sequence in running)
        heads = [next(filter(may_start, waiting), None) for waiting in self._by_caller.values()]

        def place(sequence: Sequence) -> tuple[int, int]:
            rank, arrival = rank_of(sequence)
            return rank + self._turn * held[sequence.request.caller], arrival

        return min((head for head in heads if head is not None), key=place, default=None)


def rank_of(sequence: Sequence) -> tuple[int, int]:
    """How urgent a sequence is: the lower, the more."""
    assert sequence.rank is not None
    return sequence.rank
