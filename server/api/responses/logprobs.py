"""Log probabilities of a response's text: which tokens each piece is made of, and how they are written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.formats.parts import Content, Part
from engine.request import Token
from server.generate.answer import Json, Parser
from server.generate.figures import chat_logprobs
from server.served import Tokenizer


@dataclass(frozen=True, slots=True)
class TracedContent(Content):
    """Content, and the tokens that it came with."""

    tokens: tuple[Token, ...]


class TracingParser:
    """Hands tokens on one at a time: those of thinking and of calls are told from those of the text."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._held: list[Token] = []  # their text is not out yet

    @property
    def reasoning_tokens(self) -> int:
        return self._parser.reasoning_tokens

    def push(self, tokens: Sequence[Token]) -> list[Part]:
        parts: list[Part] = []
        for token in tokens:
            self._held.append(token)
            parts += self._traced(self._parser.push((token,)))
        return parts

    def finish(self) -> list[Part]:
        return self._traced(self._parser.finish())

    def _traced(self, parts: list[Part]) -> list[Part]:
        """The same parts; the tokens held belong to the first text among them."""
        traced: list[Part] = []
        for part in parts:
            tokens, self._held = tuple(self._held), []
            traced.append(TracedContent(part.text, tokens) if isinstance(part, Content) else part)
        return traced


def text_logprobs(tokens: Sequence[Token], tokenizer: Tokenizer) -> list[Json]:
    """One entry a token. This API knows no null for a token that has no bytes."""
    entries: Any = chat_logprobs(tokens, tokenizer)["content"]
    for entry in entries:
        for one in (entry, *entry["top_logprobs"]):
            one["bytes"] = one["bytes"] or []
    return list(entries)
