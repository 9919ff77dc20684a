"""Guesses how a sequence goes on: from its own text, from a text that its request predicted, or by a draft block.

LookupDrafter finds where the last tokens of a sequence occurred before: what followed there may follow here.
PredictionFollower follows the answer in the predicted text. ModelDrafter runs the model's own draft block, which goes
on from the trunk's final states.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from engine.run.runner_protocol import DraftModel, SequenceRows
from engine.run.sequence import TokenSequence
from engine.run.step import Computed, PlannedRows

# The kind of a guess says what it was made from, and how many tokens before it agreed with the answer: kinds with more
# agreement come later. Kinds of the draft block say how many tokens it has drafted before.
_AGREEMENTS = (3, 4, 6, 10, 16, 32)  # tokens: the bounds between kinds
_LEVEL_OF = tuple(bisect_right(_AGREEMENTS, agreed) for agreed in range(_AGREEMENTS[-1] + 1))
# How likely a guess of each kind is taken to be right before any was judged.
_OF_TEXT = (0.15, 0.25, 0.4, 0.6, 0.75, 0.85, 0.9)
_OF_PREDICTION = (0.5, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_OF_DRAFT_BLOCK = (0.7, 0.65, 0.6, 0.6, 0.55, 0.55, 0.5, 0.5)
FIRST_LIKELIHOODS = _OF_TEXT + _OF_PREDICTION + _OF_DRAFT_BLOCK
# The kinds of each source: places in FIRST_LIKELIHOODS.
FROM_TEXT = range(len(_OF_TEXT))
FROM_PREDICTION = range(FROM_TEXT.stop, FROM_TEXT.stop + len(_OF_PREDICTION))
FROM_DRAFT_BLOCK = range(FROM_PREDICTION.stop, len(FIRST_LIKELIHOODS))


@dataclass(frozen=True, slots=True)
class Guess:
    """Tokens that may come next, and the kind of each; each is only right where those before it are."""

    tokens: tuple[int, ...]
    kinds: tuple[int, ...]  # places in FIRST_LIKELIHOODS


NOTHING = Guess((), ())


class Drafter(Protocol):
    """Guesses how one sequence goes on."""

    def guess(self, tokens: list[int], most: int) -> Guess:
        """Up to `most` tokens that may follow those that the sequence has, its prompt's and its answer's."""
        ...


def looked_up(tokens: tuple[int, ...], agreed: int, source: range = FROM_TEXT) -> Guess:
    """A guess from a text whose last `agreed` tokens are those of the answer; source: the kinds of that text."""
    kinds = [source[level] for level in _LEVEL_OF[agreed : agreed + len(tokens)]]
    kinds += [source[-1]] * (len(tokens) - len(kinds))
    return Guess(tokens, tuple(kinds))


def drafted_by_model(tokens: tuple[int, ...]) -> Guess:
    """A guess of the model's own draft block."""
    last = len(FROM_DRAFT_BLOCK) - 1
    return Guess(tokens, tuple([FROM_DRAFT_BLOCK[min(place, last)] for place in range(len(tokens))]))


SIZES = (3, 2)  # tokens in a run that is looked up: the longer runs first
READ_AT_ONCE = 4096  # most tokens that one guess reads: a long prompt is read over several steps
MOST_COMPARED = 32  # tokens back to which an occurrence is compared with the end of the text


class TextIndex:
    """Where each run of tokens was last followed by another, in a text that grows."""

    def __init__(self) -> None:
        self._places: dict[int, dict[tuple[int, ...], int]] = {size: {} for size in SIZES}
        self._read = 0

    def read(self, tokens: Sequence[int], most: int = READ_AT_ONCE) -> None:
        """Take in up to `most` more tokens of the text, which begins as it did before."""
        end = min(len(tokens), self._read + most)
        for size, places in self._places.items():
            first = max(self._read, size)  # places that follow a run: the end of the text is none of them
            if first + 1 == end:  # as in each step of an answer, where it takes a third of the time
                places[tuple(tokens[first - size : first])] = first
            elif first < end:
                columns = (tokens[first - size + column : end - size + column] for column in range(size))
                places.update(zip(zip(*columns, strict=True), range(first, end), strict=True))
        self._read = end

    def find(self, tokens: Sequence[int]) -> int | None:
        """The last place before whose tokens are those at the end of the text."""
        for size, places in self._places.items():
            place = places.get(tuple(tokens[-size:]))
            if place is not None:
                return place
        return None


class LookupDrafter:
    """Guesses from the sequence's own prompt and answer."""

    def __init__(self) -> None:
        self._index = TextIndex()

    def guess(self, tokens: list[int], most: int) -> Guess:
        """As Drafter has it."""
        self._index.read(tokens)
        place = self._index.find(tokens)
        if place is None:
            return NOTHING
        period = len(tokens) - place  # where the text ends, it is taken to go round
        following = tokens[place : place + most]
        found = [following[ahead % period] for ahead in range(most)] if len(following) < most else following
        return looked_up(tuple(found), agreement(tokens, len(tokens), tokens, place))


def agreement(text: Sequence[int], end: int, other: Sequence[int], place: int) -> int:
    """How many tokens before text[end] equal those before other[place], MOST_COMPARED at most."""
    most = min(end, place, MOST_COMPARED)
    for back in range(1, most + 1):
        if text[end - back] != other[place - back]:
            return back - 1
    return most


class PredictionFollower:
    """A place in the predicted tokens. Where the answer leaves them, its last tokens are looked for in them."""

    def __init__(self, prediction: tuple[int, ...], prompt_tokens: int) -> None:
        self._prediction = prediction
        self._places: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)  # that follow each run, ascending
        for size in SIZES:
            for place in range(size, len(prediction)):
                self._places[prediction[place - size : place]].append(place)
        self._followed = prompt_tokens  # tokens of the sequence that were compared
        self._place: int | None = 0  # of the prediction, where the next token of the answer should be
        self._last_place = 0  # the last that was known
        self._right = bytearray(len(prediction))  # 1: the answer had this token where it was expected

    @property
    def accepted(self) -> int:
        """How many of the predicted tokens have come where they were expected."""
        return sum(self._right)

    def follow(self, tokens: list[int]) -> None:
        """Compare the tokens that the sequence has got since the last call."""
        for end in range(self._followed, len(tokens)):
            self._take(tokens, end)
        self._followed = len(tokens)

    def _take(self, tokens: list[int], end: int) -> None:
        place = self._place
        if place is not None and place < len(self._prediction) and self._prediction[place] == tokens[end]:
            self._right[place] = 1
            self._place = self._last_place = place + 1
        else:
            self._place = self._found(tokens, end + 1)
            self._last_place = self._last_place if self._place is None else self._place

    def _found(self, tokens: list[int], end: int) -> int | None:
        """Where the prediction goes on as tokens[:end] end: behind the last place if it does, else before it."""
        for size in SIZES:
            places = self._places.get(tuple(tokens[max(0, end - size) : end]))
            if places:
                return places[min(bisect_right(places, self._last_place), len(places) - 1)]
        return None

    def guess(self, tokens: list[int], most: int) -> Guess:
        """As Drafter has it."""
        self.follow(tokens)
        if self._place is None or self._place >= len(self._prediction):
            return NOTHING
        agreed = agreement(tokens, len(tokens), self._prediction, self._place)
        return looked_up(self._prediction[self._place : self._place + most], agreed, FROM_PREDICTION)


class ModelDrafter:
    """Follows every row of the trunk, so that the block has keys and values for all positions before a draft's."""

    def __init__(self, draft: DraftModel, block_tokens: int) -> None:
        self._draft = draft
        self._block_tokens = block_tokens

    def room(self, sequence: TokenSequence) -> int:
        """How many tokens can be drafted: the rows after the first stand where the sequence has blocks already."""
        return min(map(len, sequence.held.tables)) * self._block_tokens - sequence.computed + 1

    def follow(
        self, steps: list[Computed], wanted: Mapping[TokenSequence, int]
    ) -> dict[TokenSequence, tuple[int, ...]]:
        """Take in a step's rows, as far as they are right, and draft so many tokens of some of its sequences."""
        alive = [step for step in steps if _has_right_rows(step.planned)]
        if not alive:
            return {}
        batch = [_rows(step.planned, wanted.get(step.planned.sequence, 0) > 0) for step in alive]
        states = [step.final[: len(rows.tokens)] for step, rows in zip(alive, batch, strict=True)]
        self._draft.run(batch, np.concatenate(states))
        asking = [step.planned.sequence for step, rows in zip(alive, batch, strict=True) if rows.logit_rows]
        drafts: dict[TokenSequence, tuple[int, ...]] = {}
        while asking:
            for sequence, token in zip(asking, self._draft.likeliest, strict=True):
                # -1 stands for logits that are no numbers: no draft of theirs is right, and any token will do.
                drafts[sequence] = (*drafts.get(sequence, ()), max(token, 0))
            going = [place for place, sequence in enumerate(asking) if len(drafts[sequence]) < wanted[sequence]]
            asking = [asking[place] for place in going]
            if asking:
                self._draft.run([_next_row(s, drafts[s]) for s in asking], self._draft.final[going])
        return drafts


def _has_right_rows(planned: PlannedRows) -> bool:
    """Whether the sequence still has a lane, and some of these rows were right."""
    return bool(planned.sequence.held.tables) and planned.sequence.computed > planned.rows.position


def _rows(planned: PlannedRows, needs_draft: bool) -> SequenceRows:
    """The token after each row of a step that was right."""
    sequence, position = planned.sequence, planned.rows.position
    tokens = sequence.tokens[position + 1 : sequence.computed + 1]
    final = range(len(tokens) - 1, len(tokens)) if needs_draft else range(0)
    return SequenceRows(tokens, position, sequence.held.tables, 1 if needs_draft else 0, final)


def _next_row(sequence: TokenSequence, drafts: tuple[int, ...]) -> SequenceRows:
    position = sequence.computed - 1 + len(drafts)
    return SequenceRows(drafts[-1:], position, sequence.held.tables, 1, range(1))
