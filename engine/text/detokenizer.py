"""Generated tokens to text as they come: a character is given out only when all of its bytes are there."""

import codecs
from collections.abc import Sequence
from typing import Protocol


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
