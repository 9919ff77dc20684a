"""Answers of a model that knows nothing: random logits at temperature 1.5 under a constraint, until an end token."""

import numpy as np
from numpy.typing import NDArray

from engine.api.constraint import Constraint, Matcher
from engine.text.tokenizer import Tokenizer

TEMPERATURE = 1.5
LONGEST = 400  # tokens
ROWS = 16


class RandomModel:
    """Logits by the last token alone, from a few random rows; the longer an answer gets, the more it wants to close."""

    def __init__(self, tokenizer: Tokenizer, name: str) -> None:
        self.name = name
        self._tokenizer = tokenizer
        self._ends = sorted(tokenizer.end_ids)
        size = -(-tokenizer.vocab_size // 32) * 32
        rng = np.random.default_rng(1)
        self._rows = rng.normal(0, 2, (ROWS, size)).astype(np.float32) / TEMPERATURE
        self._noise = rng.gumbel(size=1 << 20).astype(np.float32)
        self._wish = np.zeros(size, np.float32)
        self._wish[: tokenizer.vocab_size] = [_closes(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size)]
        self._wish[self._ends] = 2

    def answer(self, constraint: Constraint, seed: int) -> tuple[list[int], bool]:
        """The tokens without the end token, and whether it came to one."""
        rng = np.random.default_rng(seed)
        matcher = constraint.start()
        tokens: list[int] = []
        last = seed
        for step in range(LONGEST):
            last = self._draw(matcher, last, step, rng)
            if last in self._ends:
                return tokens, True
            matcher.accept(last)
            tokens.append(last)
        return tokens, False

    def text(self, tokens: list[int]) -> bytes:
        return b"".join(map(self._tokenizer.token_bytes, tokens))

    def _draw(self, matcher: Matcher, last: int, step: int, rng: np.random.Generator) -> int:
        """Softmax sampling by Gumbel noise."""
        start = rng.integers(len(self._noise) - len(self._wish))
        scores = self._rows[last % ROWS] + self._noise[start : start + len(self._wish)]
        scores += step * 0.2 * self._wish
        scores[~allowed(matcher)] = -np.inf
        return int(scores.argmax())


def allowed(matcher: Matcher) -> NDArray[np.bool_]:
    """The mask, one element a token."""
    return np.unpackbits(matcher.mask().view(np.uint8), bitorder="little").view(np.bool_)


def _closes(text: bytes) -> float:
    """How much a token brings a JSON text to its end."""
    if text[-1:] in (b"}", b"]"):
        return 1.5
    if text[-1:] in (b"{", b"[", b","):
        return -1.0
    return 1.0 if text.strip()[:1] in (b'"', b"}", b"]", b",", b"@") or text in (b"null", b"n") else 0.0
