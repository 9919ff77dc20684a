"""Decides how many guessed tokens go into a step beside those that are known: as many as should make answers faster.

With guesses of the chances c1 >= c2 >= ... of all sequences, n of them make the step

    (1 + (c1 + ... + cn) / sequences) / (1 + seconds of n draft rows / seconds of the step without)

times as fast in tokens a second. Chances are measured, at no cost, for guesses that were not tried as well; seconds are
those of the steps before (see Pace). What is decided here changes when a token comes, never which.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.config import EngineConfig
from engine.scheduling.pace import Pace
from engine.sequence import Sequence
from engine.speculation.acceptance import Acceptance
from engine.speculation.guess import NOTHING, Drafter, Guess
from engine.speculation.ngram import LookupDrafter

LEAST_GAIN = 1.05  # times as fast as without drafts that a step should be
FIRST_COST = 0.25  # of a step, that one draft row is taken to add until one was measured
STEPS_WITH_DRAFTS = 32  # in a row; then one without, so that its time stays known
STEPS_TO_PROBE = 64  # without drafts, although guesses are good: rows may have become cheaper
GOOD_CHANCE = 0.5


@dataclass(slots=True)
class _Answer:
    """What is known of one sequence that decodes."""

    drafters: list[Drafter]
    acceptance: Acceptance
    guess: Guess = NOTHING
    guessed_at: int = 0  # tokens that the sequence had then
    is_trusted: bool = True


@dataclass(slots=True)
class _Turns:
    """Steps with so many sequences that decode, since ..."""

    with_drafts: int = 0  # ... the last without drafts
    without_drafts: int = 0  # ... the last with some, that had good guesses


@dataclass(slots=True)
class Speculation:
    """Asked by the scheduler before each step that only decodes."""

    config: EngineConfig
    pace: Pace
    _shared: Acceptance = field(default_factory=Acceptance)
    _answers: dict[Sequence, _Answer] = field(default_factory=dict)
    _turns: dict[int, _Turns] = field(default_factory=dict)

    def drafts(self, rooms: Mapping[Sequence, int], most: int) -> dict[Sequence, tuple[int, ...]]:
        """The tokens to try after the last of each sequence, no more than its room and `most` of all together."""
        lanes = len(rooms)
        most = min(most, self.config.knee_rows - lanes)
        if self.config.speculation == "off" or lanes == 0 or most <= 0:
            return {}
        chances = []
        for sequence, room in rooms.items():
            guess = self._guess(sequence)
            chances += [(chance, sequence) for chance in self._answers[sequence].acceptance.chances(guess)[:room]]
        chances.sort(key=lambda one: one[0], reverse=True)
        count = self._count([chance for chance, _ in chances[:most]], lanes)
        drafts = dict.fromkeys(rooms, 0)
        for _, sequence in chances[:count]:
            drafts[sequence] += 1
        return {sequence: self._answers[sequence].guess.tokens[:rows] for sequence, rows in drafts.items() if rows}

    def distrust(self, sequence: Sequence) -> None:
        """Try no more drafts of a sequence: a step with some has failed."""
        self._answer(sequence).is_trusted = False

    def drop(self, sequence: Sequence) -> None:
        """Forget a sequence that has ended."""
        self._answers.pop(sequence, None)

    def _answer(self, sequence: Sequence) -> _Answer:
        answer = self._answers.get(sequence)
        if answer is None:
            followed: list[Drafter] = [] if sequence.prediction is None else [sequence.prediction]
            answer = self._answers[sequence] = _Answer([*followed, LookupDrafter()], Acceptance(self._shared))
        return answer

    def _guess(self, sequence: Sequence) -> Guess:
        """Judge the last guess by what came, and make the next: of the first drafter that has one."""
        answer = self._answer(sequence)
        answer.acceptance.note(answer.guess, sequence.tokens[answer.guessed_at :])
        answer.guessed_at, answer.guess = len(sequence.tokens), NOTHING
        if answer.is_trusted:
            guesses = (drafter.guess(sequence.tokens, self.config.draft_max) for drafter in answer.drafters)
            answer.guess = next((guess for guess in guesses if guess.tokens), NOTHING)
        return answer.guess

    def _count(self, chances: list[float], lanes: int) -> int:
        """How many of the chances, which descend, are worth their rows."""
        turns = self._turns.setdefault(lanes, _Turns())
        count = self._best_count(chances, lanes)
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

    def _best_count(self, chances: list[float], lanes: int) -> int:
        step = self.pace.decode_seconds(lanes)
        if not step or not self.pace.knows_decode(lanes):
            return 0
        known = self.pace.most_drafts(lanes)
        best, count, gain = LEAST_GAIN, 0, 0.0
        for rows, chance in enumerate(chances[: max(2, 2 * known)], 1):  # what no step has shown yet, little by little
            gain += chance
            cost = self.pace.draft_seconds(lanes, rows)
            speed = (1 + gain / lanes) / (1 + (rows * FIRST_COST if cost is None else cost / step))
            if speed > best:
                best, count = speed, rows
        return count
