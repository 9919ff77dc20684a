"""Which tokens belong to which piece of text, however it was split."""

import random
from collections.abc import Sequence

from engine.api.request import Token
from engine.text.formats.parts import CallArguments, CallBegin, Content, Part, Reasoning
from server.api.responses.reply import TracedContent, TracingParser


class Halves:
    """Text comes out with every second token, as where a character has two; digits are thinking, capitals calls."""

    reasoning_tokens = 0

    def __init__(self) -> None:
        self._held = ""

    def push(self, tokens: Sequence[Token]) -> list[Part]:
        parts: list[Part] = []
        for token in tokens:
            self._held += token.text
            if len(self._held) == 2:
                parts += self.finish()
        return parts

    def finish(self) -> list[Part]:
        text, self._held = self._held, ""
        if text.isdigit():
            return [Reasoning(text)]
        if text.isupper():
            return [CallBegin(0, text), CallArguments(0, "{}")]
        return [Content(text)] if text else []


def traced(text: str, cuts: Sequence[int]) -> list[tuple[str, str]]:
    """Each text and the tokens that it came with, when the tokens arrive in groups."""
    parser = TracingParser(Halves())
    tokens = [Token(place, character) for place, character in enumerate(text)]
    parts: list[Part] = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        parts += parser.push(tokens[start:end])
    parts += parser.finish()
    return [
        (part.text, "".join(token.text for token in part.tokens)) for part in parts if isinstance(part, TracedContent)
    ]


def test_each_text_has_its_own_tokens_and_no_others() -> None:
    assert traced("12abcdAB34efg", ()) == [("ab", "ab"), ("cd", "cd"), ("ef", "ef"), ("g", "g")]


def test_it_does_not_matter_in_what_groups_the_tokens_come() -> None:
    rng = random.Random(1)
    for _ in range(100):
        text = "".join(rng.choice(("12", "ab", "AB", "cd")) for _ in range(8)) + rng.choice(("", "e"))
        cuts = sorted(rng.sample(range(len(text)), rng.randrange(6)))
        assert traced(text, cuts) == traced(text, ())
