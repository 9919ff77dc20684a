"""How much drafting may cost: the share of guesses that were right, and the time that may be spent.

How often guesses were right: of one sequence, and of all as what to expect of the next.

What guessed tokens may cost one answer, whatever it turns out to say.
"""

from itertools import accumulate
from operator import mul

from engine.speculation.drafters import FIRST_LIKELIHOODS, Guess

FIRST_TOKENS = 1.0  # that a new answer may lose before any guess was right
SHARE = 0.015  # of the tokens that have come, that it may lose besides
MOST_TOKENS = 4.0  # that it may lose from any moment on, however much it gained before
# Tokens that a row counts as, at least and at most: none is free, and one that is dearer than what it can bring is only
# tried now and then to learn what it costs now.
_LEAST, _MOST = 0.01, 1.0


class Account:
    """Counts in tokens: a draft costs as many as would have come in the time of its row, one that is right brings one.

    What is not in the account is not spent. So drafts make an answer of n tokens later than it would be without by the
    time of FIRST_TOKENS + SHARE * n of its tokens at most, at the prices known when they were tried; where it ceases to
    repeat anything, by that of MOST_TOKENS + SHARE * n from there on. After wrong guesses it rests the longer the
    less was right before, as the account fills with what comes; right ones pay for more at once.
    """

    def __init__(self) -> None:
        self.tokens = FIRST_TOKENS

    def rows_at(self, prices: list[float]) -> int:
        """How many rows it can pay for, where `prices` are those of 1, 2, ... rows of all sequences; none, of none."""
        if not prices:
            return 0
        return int(self.tokens / max(_counted(price / rows) for rows, price in enumerate(prices, 1)))

    def pay(self, rows: int, price: float) -> None:
        """So many rows are tried, at a price each."""
        self.tokens -= rows * _counted(price)

    def note(self, came: int, right: int) -> None:
        """So many tokens have come since the last call, of which `right` were drafts that had been tried."""
        self.tokens = min(self.tokens + SHARE * came + right, MOST_TOKENS)


def _counted(price: float) -> float:
    return min(max(price, _LEAST), _MOST)


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
