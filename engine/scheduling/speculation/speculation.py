"""Speculation: which tokens are guessed for a sequence, by whom, and which of the guesses the model confirms.

Decides how many guessed tokens go into a step beside those that are known: as many as should make answers faster.

With guesses of the chances c1 >= c2 >= ... of all sequences, n of them make the step

    (1 + (c1 + ... + cn) / sequences) / (1 + seconds of n draft rows / seconds of the step without)

times as fast in tokens a second. Chances are measured at no cost, also for guesses that were not tried. Seconds are
those of earlier steps (see Pace). Chances may deceive, so the Account of an answer bounds what wrong guesses cost.
These decisions change when a token comes, never which token.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.api.config import DRAFTING, EngineConfig
from engine.errors import OctavoError
from engine.run.pace import Pace
from engine.run.runner_protocol import DraftModel
from engine.run.sequence import TokenSequence
from engine.run.step import Computed
from engine.scheduling.speculation.draft_budget import Acceptance, Account, Worth, could_gain
from engine.scheduling.speculation.drafters import (
    NOTHING,
    Drafter,
    Guess,
    LookupDrafter,
    ModelDrafter,
    PredictionFollower,
    drafted_by_model,
)

logger = logging.getLogger(__name__)

MOST_PAUSE = 7  # steps without a guess, after guesses of which nothing was tried


@dataclass(slots=True)
class _Answer:
    """What is known of one sequence that decodes."""

    drafters: list[Drafter]
    acceptance: Acceptance
    prediction: PredictionFollower | None  # one of the drafters, if the request has a prediction
    account: Account = field(default_factory=Account)
    guess: Guess = NOTHING
    tried: int = 0  # of the guess
    guessed_at: int = 0  # tokens that the sequence had then
    is_trusted: bool = True
    pause_steps: int = 0  # after the last guess
    to_wait: int = 0  # steps until the next, that one too

    def is_due(self) -> bool:
        """Whether to guess in this step."""
        self.to_wait = max(0, self.to_wait - 1)
        return not self.to_wait

    def pause(self, *, was_tried: bool) -> None:
        """After a guess of which nothing was tried, leave out steps: guessing takes time in each lane.

        A text that begins to repeat is noticed that many steps later.
        """
        self.pause_steps = 0 if was_tried else min(2 * self.pause_steps + 1, MOST_PAUSE)
        self.to_wait = self.pause_steps + 1

    def judge(self, tokens: list[int]) -> None:
        """Compare the last guess with what came, and have none until the next."""
        if self.guessed_at:
            came = tokens[self.guessed_at :]
            right = self.acceptance.note(self.guess, came)
            self.account.note(len(came), min(right, self.tried))
        self.guessed_at, self.guess, self.tried = len(tokens), NOTHING, 0


def _is_ready(sequence: TokenSequence) -> bool:
    """Whether a sequence has a lane and decodes."""
    return bool(sequence.held.tables) and sequence.pending == 1 and sequence.new_tokens > 0


class Speculation:
    """Asked by the scheduler before each step that only decodes; told by the loop of what was computed."""

    def __init__(self, config: EngineConfig, pace: Pace, draft: DraftModel | None, block_tokens: int) -> None:
        """`draft`: the model's own draft block. OctavoError if it is to be used and there is none."""
        mode = config.speculation
        if mode == "mtp" and draft is None:
            raise OctavoError(
                "This model has no draft block for --speculation mtp; give its file with --mtp, or use auto or ngram."
            )
        self.is_off = mode == "off"
        self._looks_up = mode in ("auto", "ngram")
        self._model = ModelDrafter(draft, block_tokens) if draft is not None and mode in DRAFTING else None
        self._most, self._knee = config.draft_max, config.knee_rows
        self._worth = Worth(pace)
        self._shared = Acceptance()
        self._answers: dict[TokenSequence, _Answer] = {}

    @property
    def follows(self) -> bool:
        """Whether the final states of all rows are wanted."""
        return self._model is not None

    def due(self, sequences: list[TokenSequence]) -> list[TokenSequence]:
        """The sequences to ask for drafts in the next step; all `sequences` decode in it."""
        if self.is_off or len(sequences) >= self._knee:
            return []
        return [sequence for sequence in sequences if self._answer(sequence).is_due() or self.follows]

    def drafts(self, rooms: Mapping[TokenSequence, int], most: int, lanes: int) -> dict[TokenSequence, tuple[int, ...]]:
        """The tokens to try after the last token of each sequence; `most` tokens of all sequences together.

        rooms: the most tokens of each sequence that is due. lanes: how many sequences decode.
        """
        most = min(most, self._knee - lanes)
        if most <= 0:
            return {}
        guessed = {sequence: answer for sequence in rooms if (answer := self._guessed(sequence)).guess.tokens}
        drafts = self._chosen(guessed, rooms, most, lanes) if guessed else {}
        for sequence in rooms:
            self._answers[sequence].pause(was_tried=sequence in drafts)
        return drafts

    def _chosen(
        self, guessed: Mapping[TokenSequence, _Answer], rooms: Mapping[TokenSequence, int], most: int, lanes: int
    ) -> dict[TokenSequence, tuple[int, ...]]:
        """The guessed tokens that are worth their rows and that the accounts can pay for."""
        hopes = {one: answer.acceptance.chances(answer.guess)[: rooms[one]] for one, answer in guessed.items()}
        # Most guesses in text that does not repeat are hopeless at any price; then the price is not looked up.
        prices = self._worth.prices(lanes, most) if could_gain(sum(map(sum, hopes.values())), lanes) else []
        chances = []
        for sequence, answer in guessed.items():
            room = answer.account.rows_at(prices)
            chances += [(chance, sequence) for chance in hopes[sequence][:room]]
        chances.sort(key=lambda one: one[0], reverse=True)
        count = self._worth.rows([chance for chance, _ in chances], lanes, prices)
        drafts = Counter(sequence for _, sequence in chances[:count])
        for sequence, rows in drafts.items():
            guessed[sequence].tried = rows
            guessed[sequence].account.pay(rows, prices[count - 1] / count)
        return {sequence: guessed[sequence].guess.tokens[:rows] for sequence, rows in drafts.items()}

    def follow(self, steps: list[Computed]) -> int:
        """Have the draft block take in a step's rows, and guess for the next; returns how many rounds that took."""
        if self._model is None:
            return 0
        ready = [step.planned.sequence for step in steps if _is_ready(step.planned.sequence)]
        wanted = self._wanted(ready) if 0 < len(ready) < self._knee else {}
        for sequence, tokens in self._model.follow(steps, wanted).items():
            self._answers[sequence].guess = drafted_by_model(tokens)
        return max(wanted.values(), default=0)

    def distrust(self, sequence: TokenSequence) -> None:
        """Try no more drafts of a sequence: a step with some has failed."""
        self._answer(sequence).is_trusted = False

    def stop_following(self) -> None:
        """Do without the draft block: it has failed."""
        self._model = None

    def predicted_right(self, sequence: TokenSequence) -> int:
        """How many tokens of the request's prediction have come where they were expected, whether tried or not."""
        if not sequence.request.prediction:
            return 0
        follower = self._answer(sequence).prediction
        assert follower is not None
        follower.follow(sequence.tokens)
        return follower.accepted

    def drop(self, sequence: TokenSequence) -> None:
        """Forget a sequence that has ended."""
        self._answers.pop(sequence, None)

    def _answer(self, sequence: TokenSequence) -> _Answer:
        answer = self._answers.get(sequence)
        if answer is None:
            predicted = sequence.request.prediction
            prediction = PredictionFollower(predicted, sequence.prompt_tokens) if predicted else None
            lookup = LookupDrafter() if self._looks_up else None
            drafters: tuple[Drafter | None, ...] = (prediction, lookup)
            answer = _Answer([one for one in drafters if one is not None], Acceptance(self._shared), prediction)
            self._answers[sequence] = answer
        return answer

    def _guessed(self, sequence: TokenSequence) -> _Answer:
        """Judge the last guess by what came, and make the next: of the first drafter that has one."""
        answer = self._answer(sequence)
        if answer.guessed_at == len(sequence.tokens):
            return answer
        answer.judge(sequence.tokens)
        try:
            guesses = (drafter.guess(sequence.tokens, self._most) for drafter in answer.drafters if answer.is_trusted)
            answer.guess = next((guess for guess in guesses if guess.tokens), NOTHING)
        except Exception:
            logger.exception("no more drafts for %s: guessing has failed", sequence.request.id)
            answer.is_trusted = False
        return answer

    def _wanted(self, ready: list[TokenSequence]) -> Mapping[TokenSequence, int]:
        """How many tokens of each sequence the draft block should guess: where it is likelier right than a look-up."""
        assert self._model is not None
        hoped, chances = drafted_by_model((0,) * self._most), []
        prices = self._worth.prices(len(ready), self._knee - len(ready))
        in_all = self._worth.prices_with_rounds(len(ready), prices)
        for sequence in ready:
            answer = self._guessed(sequence)
            room = min(self._model.room(sequence), answer.account.rows_at(in_all))
            own = answer.acceptance.chances(hoped)[:room]
            if answer.is_trusted and sum(own) > sum(answer.acceptance.chances(answer.guess)):
                chances += [(chance, sequence) for chance in own]
        chances.sort(key=lambda one: one[0], reverse=True)
        count = self._worth.model_rows([chance for chance, _ in chances], len(ready), in_all)
        wanted = Counter(sequence for _, sequence in chances[:count])
        for sequence, rows in wanted.items():
            self._answers[sequence].account.pay(rows, (in_all[count - 1] - prices[count - 1]) / count)
        return wanted
