"""Which drafts are worth their time: how likely they are right, what they cost, and what one answer may spend on them.

Worth decides by the chances and by what steps took. Account bounds what wrong drafts cost an answer. Acceptance
measures how often guesses were right: of one sequence, and of all sequences as what to expect of the next.
"""

from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

from engine.run.pace import Pace
from engine.scheduling.speculation.drafters import FIRST_LIKELIHOODS, Guess

LEAST_GAIN = 1.05  # times as fast as without drafts that a step should be
FIRST_COST = 0.25  # of a step, that one draft row, or a round of the draft block, is taken to add until it was measured
STEPS_WITH_DRAFTS = 32  # in a row; then one without, so that its time stays known
STEPS_TO_PROBE = 8  # that did without, although there were chances: then one draft, to learn what it costs now
MOST_TO_PROBE = 1024  # likewise, where that was in vain again and again: each time twice as many
STEPS_TO_ASK = 64  # in which the draft block was not asked, although it could guess: then once, likewise
GOOD_CHANCE = 0.5

FIRST_TOKENS = 1.0  # that a new answer may lose before any guess was right
SHARE = 0.015  # of the tokens that have come, that it may lose besides
MOST_TOKENS = 4.0  # that it may lose from any moment on, however much it gained before
# The least and the most tokens that a row counts as. No row is free. A row that costs more than it can bring is tried
# only now and then, to learn its present cost.
_LEAST, _MOST = 0.01, 1.0


class Account:
    """Counts in tokens: a draft costs the tokens that would have come in the time of its row; a right draft brings one.

    Drafting may delay an answer of n tokens by at most FIRST_TOKENS + SHARE * n token times, at the prices known when
    the drafts were tried. From the moment where a text stops repeating, the bound is MOST_TOKENS + SHARE * n token
    times. Every token that comes fills the account, so an answer pauses after wrong drafts until the account has
    enough again; right drafts pay for more drafts at once.
    """

    def __init__(self) -> None:
        self.tokens = FIRST_TOKENS

    def rows_at(self, prices: list[float]) -> int:
        """How many rows the account can pay for; `prices`: of 1, 2, ... rows of all sequences, may be empty."""
        if not prices:
            return 0
        return int(self.tokens / max(_counted(price / rows) for rows, price in enumerate(prices, 1)))

    def pay(self, rows: int, price: float) -> None:
        """Pay for rows that are tried, at a price each."""
        self.tokens -= rows * _counted(price)

    def note(self, came: int, right: int) -> None:
        """Fill the account: `came` tokens have come since the last call, `right` of them were drafts."""
        self.tokens = min(self.tokens + SHARE * came + right, MOST_TOKENS)


def _counted(price: float) -> float:
    return min(max(price, _LEAST), _MOST)


_FIRST_WEIGHT = 4.0  # judged guesses that the first likelihoods count as
_SHARED_WEIGHT = 6.0  # that those of all sequences count as for one
_SHARED_MEMORY = 0.99  # what a judged guess leaves of the counts of its kind before it
_MEMORY = 0.9


class Acceptance:
    """Counts right guesses by kind; old counts fade."""

    def __init__(self, shared: "Acceptance | None" = None) -> None:
        """`shared`: that of all sequences, which hears of all that this one does."""
        self._shared = shared
        self._memory = _SHARED_MEMORY if shared is None else _MEMORY
        self._right = [0.0] * len(FIRST_LIKELIHOODS)
        self._judged = [0.0] * len(FIRST_LIKELIHOODS)

    def note(self, guess: Guess, came: list[int]) -> int:
        """Judge a guess by the tokens that came: up to the first wrong one, those behind it tell nothing.

        Returns how many were right.
        """
        count = 0
        for kind, token, right in zip(guess.kinds, guess.tokens, came, strict=False):
            self._note(kind, token == right)
            if token != right:
                break
            count += 1
        return count

    def _note(self, kind: int, is_right: bool) -> None:
        self._right[kind] = self._memory * self._right[kind] + (1.0 if is_right else 0.0)
        self._judged[kind] = self._memory * self._judged[kind] + 1
        if self._shared is not None:
            self._shared._note(kind, is_right)

    def likelihood(self, kind: int) -> float:
        """How likely a token of this kind is right, where those before it are."""
        if self._shared is None:
            expected, weight = FIRST_LIKELIHOODS[kind], _FIRST_WEIGHT
        else:
            expected, weight = self._shared.likelihood(kind), _SHARED_WEIGHT
        return (expected * weight + self._right[kind]) / (weight + self._judged[kind])

    def chances(self, guess: Guess) -> list[float]:
        """How likely each token of a guess is right together with those before it."""
        return list(accumulate(map(self.likelihood, guess.kinds), mul))


@dataclass(slots=True)
class _Turns:
    """Steps with so many sequences that decode, since ..."""

    with_drafts: int = 0  # ... the last without drafts
    without_drafts: int = 0  # ... the last with some
    to_probe: int = STEPS_TO_PROBE  # how many of these bring a probe
    not_drafted: int = 0  # ... the draft block was last asked


@dataclass(slots=True)
class Worth:
    """Remembers when it last tried, for each number of sequences."""

    pace: Pace
    _turns: dict[int, _Turns] = field(default_factory=dict)

    def prices(self, lanes: int, most: int) -> list[float]:
        """What 1, 2, ... draft rows add to a step of so many lanes, in tokens that would have come in that time.

        No more than `most` rows, and of what no step has shown yet a little more than was shown; none before a step
        without drafts was measured. A row is worth its price only if that is below 1.
        """
        step = self.pace.decode_seconds(lanes)
        if not step or not self.pace.knows_decode(lanes):
            return []
        most = min(most, max(2, 2 * self.pace.most_drafts(lanes)))
        return [lanes * _share(self.pace.draft_seconds(lanes, rows), rows, step) for rows in range(1, most + 1)]

    def prices_with_rounds(self, lanes: int, prices: list[float]) -> list[float]:
        """The same with the rounds in which the draft block guesses for the rows."""
        step = self.pace.decode_seconds(lanes) or 1.0
        rounds = [-(-rows // lanes) for rows in range(1, len(prices) + 1)]
        return [
            price + lanes * _share(self.pace.round_seconds(number), number, step)
            for price, number in zip(prices, rounds, strict=True)
        ]

    def rows(self, chances: list[float], lanes: int, prices: list[float]) -> int:
        """How many of the chances, which descend, are worth their rows in the step to come."""
        turns = self._turns.setdefault(lanes, _Turns())
        count = _best(chances, lanes, prices)
        if count:
            turns.with_drafts, turns.without_drafts, turns.to_probe = turns.with_drafts + 1, 0, STEPS_TO_PROBE
            if turns.with_drafts <= STEPS_WITH_DRAFTS:
                return count
        elif chances and chances[0] >= GOOD_CHANCE:
            turns.without_drafts += 1
            if turns.without_drafts >= turns.to_probe:
                turns.without_drafts, turns.to_probe = 0, min(2 * turns.to_probe, MOST_TO_PROBE)
                return 1
        turns.with_drafts = 0
        return 0

    def model_rows(self, chances: list[float], lanes: int, prices: list[float]) -> int:
        """How many of the chances, which descend, are worth both their rows and the draft block's rounds."""
        turns = self._turns.setdefault(lanes, _Turns())
        count = _best(chances, lanes, prices)
        turns.not_drafted = 0 if count else turns.not_drafted + 1
        if turns.not_drafted < STEPS_TO_ASK or not chances:
            return count
        turns.not_drafted = 0
        return 1


def could_gain(gain: float, lanes: int) -> bool:
    """Whether so many tokens more from a step of so many lanes are worth drafts, if these cost nothing."""
    return lanes + gain > LEAST_GAIN * lanes


def _best(chances: list[float], lanes: int, prices: list[float]) -> int:
    """How many rows give the most tokens a second, if that is LEAST_GAIN times as many as none give."""
    best, count, gain = LEAST_GAIN, 0, 0.0
    for rows, (chance, price) in enumerate(zip(chances, prices, strict=False), 1):
        gain += chance
        speed = (lanes + gain) / (lanes + price)
        if speed > best:
            best, count = speed, rows
    return count


def _share(seconds: float | None, number: int, step: float) -> float:
    """What a number of rows or rounds adds, in steps."""
    return number * FIRST_COST if seconds is None else seconds / step
