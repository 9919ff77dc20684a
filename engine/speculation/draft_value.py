"""How many drafts are worth their time, by their chances and by what steps took."""

from dataclasses import dataclass, field

from engine.run.pace import Pace

LEAST_GAIN = 1.05  # times as fast as without drafts that a step should be
FIRST_COST = 0.25  # of a step, that one draft row, or a round of the draft block, is taken to add until it was measured
STEPS_WITH_DRAFTS = 32  # in a row; then one without, so that its time stays known
STEPS_TO_PROBE = 8  # that did without, although there were chances: then one draft, to learn what it costs now
MOST_TO_PROBE = 1024  # likewise, where that was in vain again and again: each time twice as many
STEPS_TO_ASK = 64  # in which the draft block was not asked, although it could guess: then once, likewise
GOOD_CHANCE = 0.5


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
