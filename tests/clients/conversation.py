"""One conversation of a scripted model that every client leads: two calls at once, their results, text and data.

What the model says is held to the grammar of its request, which the real compiler makes: the tools and schemas that a
client sends are then such as the server can enforce.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel

from engine.api.constraint import Constraint
from engine.api.request import Request
from engine.text.constraints.compiler import ConstraintCompiler
from server.settings import ServingOptions
from tests.server.harness import LiveServer, live_server
from tests.server.scripted.engine import Mark, PlainTemplate, ScriptedModel, ScriptedTokenizer, Step

MODEL = "scripted"
WEATHER = {"Paris": "14 degrees in Paris", "Oslo": "9 degrees in Oslo"}
WEATHER_QUESTION = "What is the weather in Paris and in Oslo?"
OSLO_QUESTION = "What is the weather in Oslo?"
WEATHER_THOUGHT = "Both towns have to be looked up."
WEATHER_ANSWER = "It is 14 degrees in Paris and 9 degrees in Oslo."
TOWN_QUESTION = "Describe Paris."
GREETING = "Say hello to Zoë."
GREETING_THOUGHT = "A greeting is wanted."
GREETING_ANSWER = "Hello, Zoë! 你好 👋"
TEXT = "Once upon"
TEXT_CONTINUED = " a time there was a town."
TOO_LONG = "x" * 5000  # tokens, more than the model's context


class Town(BaseModel):
    """A town, as data."""

    name: str
    country: str
    inhabitants: int


PARIS = Town(name="Paris", country="France", inhabitants=2_100_000)
TOOL_NAME = "get_weather"
TOOL_DESCRIPTION = "The weather in a town now."
TOOL_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"town": {"type": "string"}},
    "required": ["town"],
    "additionalProperties": False,
}


def conversation_model() -> ScriptedModel:
    template = PlainTemplate()
    model = ScriptedModel(template=template)
    model.constraints = ConstraintCompiler(model.tokenizer, model.format.marks)  # type: ignore[assignment]
    model.service.script = lambda request: _reply(model, template, request)
    return model


@contextmanager
def conversation_server(options: ServingOptions | None = None) -> Iterator[LiveServer]:
    with live_server(conversation_model(), options) as server:
        yield server


def _reply(model: ScriptedModel, template: PlainTemplate, request: Request) -> Sequence[Step]:
    """What the model says to this prompt."""
    prompt = b"".join(map(model.tokenizer.token_bytes, request.prompt)).decode()
    steps = _said(prompt, _form_tool(template))
    if request.constraint is not None:
        _check(steps, request.constraint, model.tokenizer)
    return steps


def _form_tool(template: PlainTemplate) -> str | None:
    """The tool that takes an answer as its arguments, which is how some clients ask for data."""
    functions: Any = [tool["function"] for tool in (template.tools or [()])[-1] or ()]
    return next((str(function["name"]) for function in functions if function["name"] != TOOL_NAME), None)


def _said(prompt: str, form_tool: str | None) -> Sequence[Step]:
    if not prompt.endswith("assistant: "):  # not a chat, but a text
        return _pieces(TEXT_CONTINUED)
    turns = prompt.removesuffix("assistant: ").splitlines()
    results = [turn.removeprefix("tool: ") for turn in turns if turn.startswith("tool: ")]
    if turns[-1].startswith("tool: "):
        return _pieces(f"It is {' and '.join(results)}.")
    if turns[-1].endswith(WEATHER_QUESTION):
        return [*_thought(WEATHER_THOUGHT), *_calls([(TOOL_NAME, {"town": town}) for town in WEATHER])]
    if turns[-1].endswith(OSLO_QUESTION):
        return _calls([(TOOL_NAME, {"town": "Oslo"})])
    if turns[-1].endswith(TOWN_QUESTION):
        return _calls([(form_tool, PARIS.model_dump())]) if form_tool else _pieces(json.dumps(PARIS.model_dump()))
    return [*_thought(GREETING_THOUGHT), *_pieces(GREETING_ANSWER)]


def _thought(text: str) -> list[Step]:
    return [Mark("<think>"), *_pieces(f"\n{text}"), Mark("</think>"), "\n\n"]


def _calls(calls: Sequence[tuple[str, dict[str, object]]]) -> list[Step]:
    steps: list[Step] = []
    for name, arguments in calls:
        body = json.dumps({"name": name, "arguments": arguments})
        steps += ["\n"] * bool(steps) + [Mark("<tool_call>"), *_pieces(f"\n{body}\n"), Mark("</tool_call>")]
    return steps


def _pieces(text: str) -> list[Step]:
    """Text as tokens of a few characters."""
    return [text[start : start + 5] for start in range(0, len(text), 5)]


def _check(steps: Sequence[Step], constraint: Constraint, tokenizer: ScriptedTokenizer) -> None:
    """The grammar takes the answer, and its end."""
    matcher = constraint.start()
    for step in steps:
        tokens = [tokenizer.mark_id(step.name)] if isinstance(step, Mark) else list(str(step).encode())
        for token in tokens:
            matcher.accept(token)  # raises where the grammar does not allow it
    end = min(tokenizer.end_ids)
    assert matcher.mask()[end // 32] >> (end % 32) & 1, f"the answer may not end here: {steps}"
