"""How many requests decode at once: so that requests that wait for each other are not mistaken for a batch."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Decode:
    """From the first to the last token of an answer, in seconds of any clock."""

    begin: float
    end: float
    tokens: int

    @property
    def rate(self) -> float:
        """Tokens a second; the first is there when the decode begins."""
        return (self.tokens - 1) / (self.end - self.begin)


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which the same decodes ran."""

    seconds: float
    depth: int  # decodes at once
    rate: float  # their tokens a second together


@dataclass(frozen=True, slots=True)
class Overlap:
    """What the spans of a load come to."""

    mean: float | None  # decodes at once, over the time in which there was any; None without
    most: int
    rate_at_most: float | None  # tokens a second while the most decoded


def overlap(decodes: Iterable[Decode]) -> Overlap:
    """The mean and the largest number of decodes at once."""
    found = list(spans(decodes))
    if not found:
        return Overlap(None, 0, None)
    most = max(span.depth for span in found)
    deepest = [span for span in found if span.depth == most]
    return Overlap(
        mean=sum(span.depth * span.seconds for span in found) / _seconds(found),
        most=most,
        rate_at_most=sum(span.rate * span.seconds for span in deepest) / _seconds(deepest),
    )


def spans(decodes: Iterable[Decode]) -> Iterator[Span]:
    """In order of time; decodes of a single token take none."""
    changes = []
    for decode in decodes:
        if decode.end > decode.begin:
            changes += [(decode.begin, 1, decode.rate), (decode.end, -1, -decode.rate)]
    changes.sort()
    depth, rate = 0, 0.0
    for (time, step, change), (following, _, _) in pairwise(changes):
        depth, rate = depth + step, rate + change
        if depth and following > time:
            yield Span(following - time, depth, rate)


def _seconds(found: Iterable[Span]) -> float:
    return sum(span.seconds for span in found)
