"""Guesses without a model: n-grams of the sequence's own tokens, and a client's predicted text.

Follows an answer in the text that its request predicted, and guesses that it goes on there.

What a drafter guesses, and by what it is judged.

Guesses by looking up where the last tokens of a sequence occurred before: what followed there may follow here.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

# A guess is of the kind of what it was made from and of how much of the text before it agreed with the answer.
_AGREEMENTS = (3, 4, 6, 10, 16, 32)  # tokens: the bounds between kinds
_KINDS = len(_AGREEMENTS) + 1
_KIND_OF = tuple(bisect_right(_AGREEMENTS, agreed) for agreed in range(_AGREEMENTS[-1] + 1))
_FROM_TEXT, _FROM_PREDICTION, _FROM_MODEL = 0, _KINDS, 2 * _KINDS
# How likely guesses are taken to be right before any was judged: by agreement, and the model's own.
FIRST_LIKELIHOODS = (
    *(0.15, 0.25, 0.4, 0.6, 0.75, 0.85, 0.9),
    *(0.5, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95),
    *(0.7, 0.65, 0.6, 0.6, 0.55, 0.55, 0.5, 0.5),
)
KINDS_OF_MODEL = len(FIRST_LIKELIHOODS) - _FROM_MODEL


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


def looked_up(tokens: tuple[int, ...], agreed: int, *, from_prediction: bool = False) -> Guess:
    """A guess from a text of which `agreed` tokens before it are those of the answer."""
    first, last = _FROM_PREDICTION if from_prediction else _FROM_TEXT, agreed + len(tokens)
    kinds = _KIND_OF[agreed:last]
    return Guess(tokens, tuple([first + kind for kind in kinds] + [first + _KINDS - 1] * (len(tokens) - len(kinds))))


def drafted_by_model(tokens: tuple[int, ...]) -> Guess:
    """A guess of the model's own draft block."""
    last = len(FIRST_LIKELIHOODS) - 1
    return Guess(tokens, tuple(min(_FROM_MODEL + place, last) for place in range(len(tokens))))


SIZES = (3, 2)  # of the runs of tokens that are looked up, the first that is found counts
READ_AT_ONCE = 4096  # tokens that a step's guess reads at most: a long prompt is read over several steps
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
        return looked_up(self._prediction[self._place : self._place + most], agreed, from_prediction=True)
