"""How often guesses were right: of one sequence, and of all as what to expect of the next."""

from itertools import accumulate
from operator import mul

from engine.speculation.guess import FIRST_LIKELIHOODS, Guess

_FIRST_WEIGHT = 4.0  # judged guesses that the first likelihoods count as
_SHARED_WEIGHT = 6.0  # that those of all sequences count as for one
_SHARED_MEMORY = 0.99  # what a judged guess leaves of the counts of its kind before it
_MEMORY = 0.9


class Acceptance:
    """Counts by kind, in which what is long past fades."""

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
        self._right[kind] = self._memory * self._right[kind] + is_right
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
