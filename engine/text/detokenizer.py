"""Generated tokens to text as they come: whole characters only, and nothing that may still become a stop string.

Stop strings are found by an Aho-Corasick automaton, which reads each character once. The depth of its state is the
length of the longest end of the text that begins some stop string: exactly what has to be held back.
"""

import codecs
from collections.abc import Sequence
from typing import Protocol


class StopMatcher:
    """Cuts one answer's text at the first stop string that completes; of several, at the one that starts earliest.

    `include` leaves the stop string in the text.
    """

    def __init__(self, stops: tuple[str, ...], *, include: bool = False) -> None:
        assert all(stops), "an empty stop string would stop everything"
        self.matched: str | None = None
        self._include = include
        self._held = ""
        self._state = 0
        self._next: list[dict[str, int]] = [{}]  # state -> character -> state; state 0 is the empty string
        self._depth = [0]
        self._match = [0]  # length of the longest stop string that ends in this state
        for stop in stops:
            self._insert(stop)
        self._fallback = [0] * len(self._next)  # state -> the state of its longest proper end
        self._link()

    @property
    def stopped(self) -> bool:
        return self.matched is not None

    @property
    def is_holding(self) -> bool:
        """Whether text is held back."""
        return bool(self._held)

    def push(self, text: str) -> str:
        """Take more of the answer; returns what is now safe to send. After a stop, nothing is."""
        if self.stopped:
            return ""
        self._held += text
        for end, character in enumerate(text, len(self._held) - len(text) + 1):
            self._state = self._step(self._state, character)
            length = self._match[self._state]
            if length:
                self.matched = self._held[end - length : end]
                return self._release(end if self._include else end - length)
        return self._release(len(self._held) - self._depth[self._state])

    def flush(self) -> str:
        """What was held back and became no stop string; later text completes none that began in it."""
        self._state = 0
        return "" if self.stopped else self._release(len(self._held))

    def _release(self, size: int) -> str:
        released, self._held = self._held[:size], self._held[size:]
        return released

    def _step(self, state: int, character: str) -> int:
        while state and character not in self._next[state]:
            state = self._fallback[state]
        return self._next[state].get(character, 0)

    def _insert(self, stop: str) -> None:
        state = 0
        for character in stop:
            if character not in self._next[state]:
                self._next[state][character] = len(self._next)
                self._next.append({})
                self._depth.append(self._depth[state] + 1)
                self._match.append(0)
            state = self._next[state][character]
        self._match[state] = len(stop)

    def _link(self) -> None:
        """Breadth first, so that every shorter state is linked before it is needed."""
        queue = list(self._next[0].values())
        for state in queue:
            for character, child in self._next[state].items():
                self._fallback[child] = self._step(self._fallback[state], character)
                self._match[child] = self._match[child] or self._match[self._fallback[child]]
                queue.append(child)


class TokenBytes(Protocol):
    """All that a detokenizer needs of a tokenizer."""

    def token_bytes(self, token: int) -> bytes: ...


class Detokenizer:
    """The text of one answer. It continues a prompt, so leading spaces are kept as the model wrote them."""

    def __init__(self, tokenizer: TokenBytes) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.is_holding = False  # a character that was begun and not completed

    def push(self, tokens: Sequence[int]) -> str:
        """The characters that these tokens complete; bytes that can be part of no character become U+FFFD."""
        written = b"".join(map(self._token_bytes, tokens))
        if not self.is_holding and written.isascii():  # as most are; the decoder takes five times as long
            return written.decode("ascii")
        text = self._decoder.decode(written)
        self.is_holding = bool(self._decoder.getstate()[0])
        return text

    def flush(self) -> str:
        """What is left where text ends: U+FFFD for a character that was begun and not completed."""
        self.is_holding = False
        return self._decoder.decode(b"", final=True)
