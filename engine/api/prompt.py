"""A prompt as the engine reads it: token ids, and spans of positions that stand for content of another kind."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload


@dataclass(frozen=True, slots=True)
class Span:
    """Positions start, start + 1, ... that stand for one piece of content, such as an image.

    The token ids at these positions are placeholders: two spans have the same content if they have the same digest.
    """

    start: int
    length: int
    digest: bytes  # of the content

    def keys(self) -> list[int]:
        """One number below 0 for each position, made from the digest and from the place in the span."""
        hashes = (self._hash(place) for place in range(self.length))
        return [-1 - (int.from_bytes(one, "little") >> 1) for one in hashes]

    def _hash(self, place: int) -> bytes:
        return hashlib.blake2b(self.digest + place.to_bytes(8, "little"), digest_size=8, person=b"span").digest()


@dataclass(frozen=True, slots=True)
class Prompt(Sequence[int]):
    """What a request begins with; as a sequence, its token ids. Nothing makes spans yet."""

    tokens: tuple[int, ...]
    spans: tuple[Span, ...] = ()  # in order; no two overlap

    def __len__(self) -> int:
        return len(self.tokens)

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...

    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        return self.tokens[index]

    def cache_keys(self, tokens: list[int]) -> list[int]:
        """What the prefix cache compares in place of `tokens`, which begin with this prompt.

        A key is the token id, or in a span a number that the content decides: so a span is found again only with the
        same content. Without spans the keys are `tokens` itself.
        """
        if not self.spans:
            return tokens
        keys = list(tokens)
        for span in self.spans:
            keys[span.start : span.start + span.length] = span.keys()
        return keys
