"""What guessed tokens may cost one answer, whatever it turns out to say."""

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
