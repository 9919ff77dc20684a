"""The queue of sequences that wait for a lane, and the order in which they get one."""

from bisect import bisect, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from engine.run.sequence import TokenSequence

AGEING = 16  # one step of priority counts as this many places in the order of arrival
PRIORITY_LIMIT = 100  # priorities are cut to this, so that every wait ends


class WaitingQueue:
    """Gives out waiting sequences in order of rank, callers in turn; no clock.

    The urgency of a request is its number in order of arrival, plus AGEING for each step of priority; the lower comes
    first among the requests of one caller. The place of a request is what callers are compared by: its number in order
    of arrival, or that of the last request of the same caller that came later and is more urgent. So a caller's
    priorities never bring a place forward. With `across_callers`, urgency is the place. A rank is place and urgency.

    Where several callers wait, each lane that a caller holds counts as `turn` places more, so that the caller with the
    fewest lanes is next, and among equals the lowest rank.

    The order of ranks is total, and the order of urgency within a caller: of two requests of a caller that are here at
    a time, the less urgent has a place at least as late, since all that put back the other put back this one too, or
    came before it. A rank changes only to a later place, and no further than AGEING * (difference of priorities, at
    most 2 * PRIORITY_LIMIT) places: what arrives after these is less urgent.

    The bound of starvation: a request is overtaken by a later one only if that arrived less than
    AGEING * (difference of priorities) + turn * (lanes that its caller holds) places after it. So at most that many
    are admitted before it beyond those that were there when it came.
    """

    def __init__(self, turn: int, *, across_callers: bool = False) -> None:
        """`turn`: what a lane counts in the comparison of callers; as many as can wait makes turns strict.

        `across_callers`: priorities count against the requests of other callers too.
        """
        self._turn = turn
        self._across_callers = across_callers
        self._arrived = 0
        self._by_caller: dict[bytes, list[TokenSequence]] = {}  # each in order of rank; no list is empty

    def __len__(self) -> int:
        return sum(map(len, self._by_caller.values()))

    def __iter__(self) -> Iterator[TokenSequence]:
        return chain.from_iterable(self._by_caller.values())

    def add(self, sequence: TokenSequence, running: Iterable[TokenSequence]) -> None:
        """Queue a sequence; one that was here before gets its old place. Those `running` may get later ranks."""
        waiting = self._by_caller.setdefault(sequence.request.caller, [])
        if sequence.standing.rank is None:
            self._arrived += 1
            priority = max(-PRIORITY_LIMIT, min(sequence.request.priority, PRIORITY_LIMIT))
            urgency = self._arrived + AGEING * priority
            # The number of arrival tells equal urgencies apart, so that the order is total.
            sequence.standing.rank = (urgency if self._across_callers else self._arrived, urgency, self._arrived)
            if not self._across_callers:
                behind = waiting[bisect(waiting, _urgency(sequence), key=_urgency) :]
                own = (other for other in running if other.request.caller == sequence.request.caller)
                behind += [other for other in own if _urgency(other) > _urgency(sequence)]
                for other in behind:
                    other.standing.rank = (self._arrived, *_urgency(other))
        insort(waiting, sequence, key=rank_of)

    def discard(self, sequence: TokenSequence) -> None:
        """Take a sequence out, if it is in."""
        caller = sequence.request.caller
        waiting = self._by_caller.get(caller, [])
        if sequence in waiting:
            waiting.remove(sequence)
            if not waiting:
                del self._by_caller[caller]

    def next(
        self, running: Iterable[TokenSequence], may_start: Callable[[TokenSequence], bool]
    ) -> TokenSequence | None:
        """The one whose turn it is among those that may start; None if there is none."""
        held = Counter(sequence.request.caller for sequence in running)
        heads = [next(filter(may_start, waiting), None) for waiting in self._by_caller.values()]

        def place(sequence: TokenSequence) -> tuple[int, int, int]:
            place, urgency, arrival = rank_of(sequence)
            return place + self._turn * held[sequence.request.caller], urgency, arrival

        return min((head for head in heads if head is not None), key=place, default=None)


def rank_of(sequence: TokenSequence) -> tuple[int, int, int]:
    """Where a sequence stands among all: the lower, the earlier."""
    assert sequence.standing.rank is not None
    return sequence.standing.rank


def _urgency(sequence: TokenSequence) -> tuple[int, int]:
    """Where a sequence stands among those of its caller."""
    _, urgency, arrival = rank_of(sequence)
    return urgency, arrival
