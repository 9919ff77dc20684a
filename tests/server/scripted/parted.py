"""A model whose script says the parts of its answers outright: thinking, text and calls, whatever formats there are."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from engine.api.request import FinishReason, Token
from engine.text.formats.answer_format import AnswerFormat
from engine.text.formats.detection import think_tags, tool_format
from engine.text.formats.parts import CallArguments, CallBegin, CallEnd, Content, Part, Reasoning, Tool
from tests.server.scripted.engine import ScriptedModel, ScriptedService, Step

SOURCE = """{{ messages }}{{ tools }}{% if enable_thinking %}<think></think>{% endif %}
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""
KINDS = {kind.__name__: kind for kind in (Reasoning, Content, CallBegin, CallArguments, CallEnd)}


class PartParser:
    """Reads the tokens that `steps` writes."""

    def __init__(self) -> None:
        self.reasoning_tokens = 0

    def push(self, tokens: Sequence[Token]) -> list[Part]:
        parts = [_part(token.text) for token in tokens if token.text]
        self.reasoning_tokens += sum(isinstance(part, Reasoning) for part in parts)
        return parts

    def finish(self) -> list[Part]:
        return []


def _part(text: str) -> Part:
    kind, *fields = json.loads(text)
    part: Part = KINDS[kind](*fields)
    return part


def steps(parts: Sequence[Part]) -> list[Step]:
    """One token a part."""
    return [json.dumps([type(part).__name__, *(getattr(part, name) for name in part.__slots__)]) for part in parts]


class PartFormat(AnswerFormat):
    """Of a model that thinks and calls, but whose parser is told the parts."""

    def parser(  # type: ignore[override]
        self, *, inside_thinking: bool, tools: Sequence[Tool], formed: bool = False
    ) -> PartParser:
        return PartParser()


@dataclass
class PartedModel(ScriptedModel):
    @property
    def format(self) -> AnswerFormat:
        return PartFormat(think_tags(SOURCE), tool_format(SOURCE), self.tokenizer)


def parted_model(*script: Part | Step) -> ScriptedModel:
    """A model that answers with these parts, among steps of other kinds."""
    return PartedModel(ScriptedService(script_of(script)))


def script_of(script: Sequence[Part | Step]) -> list[Step]:
    return [step for item in script for step in _steps(item)]


def _steps(item: Part | Step) -> list[Step]:
    return steps([item]) if isinstance(item, Part) else [item]


def random_answer(seed: int) -> list[Part | Step]:
    """Thinking, text and calls in pieces; one in three is cut by length, perhaps within a call."""
    rng = random.Random(seed)
    parts: list[Part | Step] = [Reasoning(_word(rng)) for _ in range(rng.choice((0, 0, 1, 4)))]
    parts += [Content(_word(rng)) for _ in range(rng.choice((0, 1, 5)))]
    for index in range(rng.choice((0, 0, 1, 3))):
        text = json.dumps({_word(rng): rng.choice((1, 'a"b\\c\n', [None, 2.5], {"é": "😀"}))}, ensure_ascii=False)
        cuts = sorted(rng.randrange(len(text) + 1) for _ in range(3))
        pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        parts += [CallBegin(index, f"tool_{index}"), *(CallArguments(index, piece) for piece in pieces), CallEnd(index)]
    if rng.random() < 1 / 3:
        return [*parts[: rng.randrange(len(parts) + 1)], FinishReason.LENGTH]
    return parts


def _word(rng: random.Random) -> str:
    return rng.choice(("a", " word", "é", "😀 ", "\n", "</tool_call>", "{}"))
