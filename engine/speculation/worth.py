"""How many drafts are worth their time, by their chances and by what steps took."""

from dataclasses import dataclass, field

from engine.scheduling.pace import Pace

LEAST_GAIN = 1.05  # times as fast as without drafts that a step should be
FIRST_COST = 0.25  # of a step, that one draft row, or a round of the draft block, is taken to add until it was measured
STEPS_WITH_DRAFTS = 32  # in a row; then one without, so that its time stays known
STEPS_TO_PROBE = 64  # that did without, although there were chances: then one draft, to learn what it costs now
GOOD_CHANCE = 0.5


@dataclass(slots=True)
class _Turns:
    """Steps with so many sequences that decode, since ..."""

    with_drafts: int = 0  # ... the last without drafts
    without_drafts: int = 0  # ... the last with some
    not_drafted: int = 0  # ... the draft block was last asked


@dataclass(slots=True)
class Worth:
    """Remembers when it last tried, for each number of sequences."""

    pace: Pace
    _turns: dict[int, _Turns] = field(default_factory=dict)

    def rows(self, chances: list[float], lanes: int) -> int:
        """How many of the chances, which descend, are worth their rows in the step to come."""
        turns = self._turns.setdefault(lanes, _Turns())
        count = self._best(chances, lanes)
        if count:
            turns.with_drafts, turns.without_drafts = turns.with_drafts + 1, 0
            if turns.with_drafts <= STEPS_WITH_DRAFTS:
                return count
        elif chances and chances[0] >= GOOD_CHANCE:
            turns.without_drafts += 1
            if turns.without_drafts >= STEPS_TO_PROBE:
                turns.without_drafts = 0
                return 1
        turns.with_drafts = 0
        return 0

    def model_rows(self, chances: list[float], lanes: int) -> int:
        """How many of the chances, which descend, are worth both their rows and the draft block's rounds."""
        turns = self._turns.setdefault(lanes, _Turns())
        count = self._best(chances, lanes, with_rounds=True)
        turns.not_drafted = 0 if count else turns.not_drafted + 1
        if turns.not_drafted < STEPS_TO_PROBE or not chances:
            return count
        turns.not_drafted = 0
        return 1

    def _best(self, chances: list[float], lanes: int, *, with_rounds: bool = False) -> int:
        if 1 + sum(chances) / lanes <= LEAST_GAIN:  # not even if they cost nothing
            return 0
        step = self.pace.decode_seconds(lanes)
        if not step or not self.pace.knows_decode(lanes):
            return 0
        most = max(2, 2 * self.pace.most_drafts(lanes))  # what no step has shown yet, little by little
        best, count, gain = LEAST_GAIN, 0, 0.0
        for rows, chance in enumerate(chances[:most], 1):
            gain += chance
            cost = _share(self.pace.draft_seconds(lanes, rows), rows, step)
            if with_rounds:
                rounds = -(-rows // lanes)
                cost += _share(self.pace.round_seconds(rounds), rounds, step)
            speed = (1 + gain / lanes) / (1 + cost)
            if speed > best:
                best, count = speed, rows
        return count


def _share(seconds: float | None, number: int, step: float) -> float:
    """What a number of rows or rounds adds, in steps."""
    return number * FIRST_COST if seconds is None else seconds / step
