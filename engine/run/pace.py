"""What a step will take, learned from what steps took; it has no clock of its own.

    seconds(step) = decode(lanes) + fixed + sum over chunks of rows * (row + growth * middle position)

decode(lanes) is the median of the last steps that only decoded. The three coefficients of prompt rows are fitted to the
last steps of each size, so that one size alone does not hide how the cost grows; their absolute errors are least, not
their squares, so that a step in which the machine did something else counts as one step and no more.

Steps that decode with drafts are apart: what they took beyond decode(lanes) is kept by the number of draft rows.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

_DECODE_STEPS = 15  # remembered of each number of lanes
_CHUNK_STEPS = 8  # remembered of each size
_DRAFT_STEPS = 7  # remembered of each number of lanes and of draft rows
_SIZES = 16  # powers of two
_UNBOUNDED = 1 << 30  # rows, where rows were measured to cost nothing
_ROUNDS = 4  # of reweighting; each halves the weight of what fits badly, or more
_LEAST_ERROR = 0.02  # of a step's time: what fits better is not told apart
# Ridge of the three costs: where the steps so far cannot tell them apart, the cost is a row's.
_ROW = 1  # which of the three costs is a row's
_RIDGE = np.array((1e-3, 1e-6, 1e-3))


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of one prompt in one step."""

    position: int  # of the first
    rows: int

    @property
    def positions(self) -> float:
        """The sum of the rows' positions."""
        return self.rows * (self.position + (self.rows - 1) / 2)


class Pace:
    """Fed with every step by the loop; asked by the scheduler before the next."""

    def __init__(self) -> None:
        self._decode: dict[int, deque[float]] = {}
        # By lanes, then by draft rows: the seconds that these added.
        self._drafts: dict[int, dict[int, deque[float]]] = {}
        self._rounds: dict[int, deque[float]] = {}  # of the model's own draft block, after a step: by their number
        # Of the last steps of each size, per second of the step: 1, rows, positions, seconds beyond those of its lanes.
        self._samples = np.zeros((_SIZES, _CHUNK_STEPS, 4))
        self._counts = [0] * _SIZES
        self._fitted: tuple[float, float, float] | None = None  # to all samples

    def note(self, lanes: int, chunks: Sequence[Chunk], seconds: float, drafts: int = 0) -> None:
        """Take what a step of `lanes` single rows, and some chunks or drafts, took.

        One that no clock could tell is left out, and one of both chunks and drafts, which there should not be.
        """
        if seconds <= 0 or (chunks and drafts):
            return
        if drafts:
            added = max(0.0, seconds - (self.decode_seconds(lanes) or seconds))
            known = self._drafts.setdefault(lanes, {})
            known.setdefault(drafts, deque(maxlen=_DRAFT_STEPS)).append(added)
            return
        if not chunks:
            self._decode.setdefault(lanes, deque(maxlen=_DECODE_STEPS)).append(seconds)
            return
        if lanes and not self._decode:
            return
        decode = self.decode_seconds(lanes) or 0.0
        rows = sum(chunk.rows for chunk in chunks)
        positions = sum(chunk.positions for chunk in chunks)
        size = min(rows.bit_length(), _SIZES - 1)
        sample = np.array((1.0, rows, positions, seconds - decode)) / seconds
        self._samples[size, self._counts[size] % _CHUNK_STEPS] = sample
        self._counts[size] += 1
        self._fitted = None

    def decode_seconds(self, lanes: int) -> float | None:
        """The time of a step that only decodes: as measured with the nearest number of lanes.

        Before any was measured, that of as many rows of a prompt; None if those were not either.
        """
        if lanes == 0:
            return 0.0
        if not self._decode:
            return self.fixed_seconds + self.chunk_seconds(Chunk(0, lanes)) if self.knows_chunks else None
        near = min(abs(known - lanes) for known in self._decode)
        return median(self._decode[lanes + near] if lanes + near in self._decode else self._decode[lanes - near])

    def knows_decode(self, lanes: int) -> bool:
        """Whether a step with just so many lanes was measured."""
        return lanes in self._decode

    def most_drafts(self, lanes: int) -> int:
        """The largest number of draft rows that was measured beside so many lanes; 0 if none was."""
        return max(self._drafts.get(lanes, ()), default=0)

    def draft_seconds(self, lanes: int, drafts: int) -> float | None:
        """What draft rows add to a step of so many lanes: as measured, or between two numbers that were; else None.

        More than were ever measured cost as much each as the most that were.
        """
        known = self._drafts.get(lanes)
        if not known:
            return None
        if drafts in known:
            return median(known[drafts])
        above = min((size for size in known if size > drafts), default=None)
        below = max((size for size in known if size < drafts), default=0)
        low = median(known[below]) if below else 0.0
        if above is None:
            return low * drafts / below
        return low + (median(known[above]) - low) * (drafts - below) / (above - below)

    def note_rounds(self, rounds: int, seconds: float) -> None:
        """Take what the draft block took after a step of single rows: to follow it, and to draft so many rounds."""
        self._rounds.setdefault(rounds, deque(maxlen=_DRAFT_STEPS)).append(seconds)

    def round_seconds(self, rounds: int) -> float | None:
        """What so many rounds of drafting add to following a step; None before any was measured."""
        most = max(self._rounds, default=0)
        if most == 0:
            return None
        follow = median(self._rounds.get(0, (0.0,)))
        return max(0.0, median(self._rounds[most]) - follow) * rounds / most

    @property
    def knows_chunks(self) -> bool:
        """Whether a chunk was measured yet."""
        return any(self._counts)

    def measured_twice(self, steps: int) -> bool:
        """Whether two sizes of chunks, powers of two apart, were measured so often that fixed costs can be told."""
        return sum(count >= steps for count in self._counts) > 1

    @property
    def fixed_seconds(self) -> float:
        """What prompt rows add to a step, however few they are."""
        return self._costs()[0]

    def chunk_seconds(self, chunk: Chunk) -> float:
        """What the rows of a chunk add, without the fixed part."""
        _, row, growth = self._costs()
        return row * chunk.rows + growth * chunk.positions

    def rows_within(self, seconds: float, position: int) -> int:
        """How many rows from a position on take so long, without the fixed part."""
        _, row, growth = self._costs()
        linear, square = row + growth * (position - 0.5), growth / 2
        if seconds <= 0:
            return 0
        # The positive root of square * n^2 + linear * n = seconds, in the form that is sound for a small square.
        divisor = linear + (linear * linear + 4 * square * seconds) ** 0.5
        return int(2 * seconds / divisor) if divisor > 0 else _UNBOUNDED

    def _costs(self) -> tuple[float, float, float]:
        """Seconds: fixed, a row, a row and position."""
        if self._fitted is None:
            known = [self._samples[size, :count] for size, count in enumerate(self._counts) if count]
            self._fitted = _fit(np.concatenate(known)) if known else (0.0, 0.0, 0.0)
        return self._fitted


def _fit(samples: NDArray[np.float64]) -> tuple[float, float, float]:
    """Fit the three costs, none of them negative."""
    costs, used = np.zeros(3), [0, 1, 2]
    while used:
        found = _least_absolute(samples[:, used], samples[:, 3], _RIDGE[used])
        if found.min() >= 0:
            costs[used] = found
            break
        # A cost of rows is the last to be given up: noise may hide it, but then the others say even less.
        candidates = [place for place, cost in enumerate(used) if cost != _ROW] or [0]
        del used[min(candidates, key=lambda place: found[place])]
    fixed, row, growth = costs.tolist()
    return fixed, row, growth


def _least_absolute(
    inputs: NDArray[np.float64], target: NDArray[np.float64], ridge: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Least absolute errors by least squares, reweighted; costs [used], for inputs [samples, used]."""
    scale = np.maximum(np.abs(inputs).max(axis=0), 1e-30)
    scaled = inputs / scale
    weights = np.ones(len(target))
    for _ in range(_ROUNDS):
        weighted = scaled.T * weights
        found = np.linalg.solve(weighted @ scaled + np.diag(ridge * weights.sum()), weighted @ target)
        weights = 1 / np.maximum(np.abs(target - scaled @ found), _LEAST_ERROR)
    return np.asarray(found / scale, np.float64)
