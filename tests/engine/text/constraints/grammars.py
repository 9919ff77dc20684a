"""Constraints made by hand, in the vocabulary of tests.engine.scripted."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.api.constraint import Matcher
from tests.engine.scripted import END_ID, VOCAB_SIZE, letters


def mask_of(tokens: Iterable[int]) -> NDArray[np.int32]:
    allowed = np.zeros(-(-VOCAB_SIZE // 32) * 32, bool)
    allowed[list(tokens)] = True
    return np.packbits(allowed, bitorder="little").view(np.int32)


class _WordMatcher:
    def __init__(self, words: frozenset[tuple[int, ...]]) -> None:
        self._words = words
        self.said: tuple[int, ...] = ()

    def _next(self) -> set[int]:
        size = len(self.said)
        rest = [word[size:] for word in self._words if word[:size] == self.said]
        return {tokens[0] if tokens else END_ID for tokens in rest}

    def mask(self) -> NDArray[np.int32]:
        return mask_of(self._next())

    def accept(self, token: int) -> None:
        assert token in self._next(), f"{token} is not allowed after {self.said}"
        self.said = (*self.said, token)

    @property
    def is_complete(self) -> bool:
        return self._next() == {END_ID}


class Words:
    """The answer is one of some words."""

    def __init__(self, *words: str) -> None:
        self._words = frozenset(map(letters, words))

    def start(self) -> Matcher:
        return _WordMatcher(self._words)


class _HashedMatcher:
    def __init__(self, seed: int) -> None:
        self._state = seed

    def _next(self) -> list[int]:
        return [int(token) for token in np.random.default_rng(self._state).permutation(VOCAB_SIZE)[:6]]

    def mask(self) -> NDArray[np.int32]:
        return mask_of(self._next())

    def accept(self, token: int) -> None:
        assert token in self._next()
        self._state = zlib.crc32(bytes((token,)), self._state)

    @property
    def is_complete(self) -> bool:
        return False


@dataclass(frozen=True)
class Hashed:
    """Six random tokens may come next, whichever came before."""

    seed: int

    def start(self) -> Matcher:
        return _HashedMatcher(self.seed)


class _Failing:
    def mask(self) -> NDArray[np.int32]:
        raise RuntimeError("the grammar broke")

    def accept(self, token: int) -> None: ...

    is_complete = False


class Broken:
    """Fails at the first token."""

    def start(self) -> Matcher:
        return _Failing()


class _Closed:
    def mask(self) -> NDArray[np.int32]:
        return mask_of(())

    def accept(self, token: int) -> None: ...

    is_complete = False


class Nothing:
    """Allows no token at all."""

    def start(self) -> Matcher:
        return _Closed()
