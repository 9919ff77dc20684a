"""What a drafter guesses, and by what it is judged."""

from bisect import bisect_right
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
