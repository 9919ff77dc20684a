"""Recorded cases of POST /v1/messages and POST /v1/messages/count_tokens."""

from typing import Any

from engine.api.request import FinishReason
from engine.errors import EngineFaultError
from server.settings import ServingOptions
from tests.server.recorded_cases.chat import ONE, SCHEMA, TWO, caching, thinker
from tests.server.recorded_cases.exchange import Build, Call, Case, says, whole_and_streamed
from tests.server.scripted.engine import ScriptedModel, ScriptedService

PATH = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
TURNS: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]
ASK: dict[str, Any] = {"model": "scripted", "max_tokens": 64, "messages": TURNS}
PROMPT = {"model": "scripted", "messages": TURNS}
HELLO = says("Hello", " wörld")
TOOLS = [
    {"name": "one", "description": "first", "input_schema": {"type": "object", "properties": {}}},
    {"name": "two", "input_schema": {"type": "object"}},
]
IMAGE = {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}
CACHED = [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]
OMITTED = {"type": "enabled", "budget_tokens": 1024, "display": "omitted"}
TICK = 'event: ping\ndata: {"type": "ping"}\n\n'


def both(name: str, model: Build = HELLO, options: ServingOptions | None = None, **fields: Any) -> list[Case]:
    body = {name: value for name, value in {**ASK, **fields}.items() if value is not None}
    return whole_and_streamed("messages", name, PATH, body, model=model, options=options)


def refused(name: str, path: str = PATH, **fields: Any) -> Case:
    body = {name: value for name, value in {**ASK, **fields}.items() if value is not None}
    return Case(api="messages", name=name, calls=(Call(path=path, body=body),))


def counted(name: str, **fields: Any) -> Case:
    return Case(api="messages", name=name, calls=(Call(path=COUNT, body={**PROMPT, **fields}),))


def pings_once(body: str) -> str:
    """How many there are depends on how fast the machine is."""
    while TICK + TICK in body:
        body = body.replace(TICK + TICK, TICK)
    return body


def full() -> ScriptedModel:
    return ScriptedModel(ScriptedService(max_open=0))


CASES: list[Case] = [
    *both("text"),
    *both("an empty answer", says()),
    *both("system", system="Be brief."),
    *both("max_tokens", says("a", "b", "c"), max_tokens=2),
    *both("the context is full", says("a", FinishReason.LENGTH)),
    *both("a stop sequence", says("one ", "ST", "OP", " two"), stop_sequences=["STOP"]),
    *both("thinking", thinker),
    *both("thinking that is not shown", thinker, thinking=OMITTED),
    *both("thinking disabled", thinker, thinking={"type": "disabled"}),
    *both("tool_use", says(*ONE), tools=TOOLS),
    *both("text and two of tool_use", says("I look.", *ONE, *TWO), tools=TOOLS),
    *both("tool_use cut by max_tokens", says(*ONE), tools=TOOLS, max_tokens=2),
    *both("tool_choice names a tool", says(*ONE), tools=TOOLS, tool_choice={"type": "tool", "name": "one"}),
    *both(
        "tool_choice any, one at a time",
        says(*ONE),
        tools=TOOLS,
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    ),
    *both(
        "structured output",
        says('{"sky": ', '"blue"}'),
        output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
    ),
    *both(
        "ignored parameters",
        metadata={"user_id": "u"},
        novel=1,
        output_config={"tone": "dry"},
        messages=[{"role": "user", "content": CACHED}],
    ),
    *both("the engine fails midway", says("a", EngineFaultError("Broken."))),
    *both("the engine fails within a block of tool_use", says(*ONE[:2], EngineFaultError("Broken.")), tools=TOOLS),
    *both("a full queue", full),
    *both("what would be ignored, on a strict server", options=ServingOptions(strict_params=True), novel=1),
    Case(
        api="messages",
        name="cached tokens",
        calls=(Call(path=PATH, body=ASK), Call(path=PATH, body=ASK)),
        model=caching,
    ),
    Case(
        api="messages",
        name="silence is filled with pings, streamed",
        calls=(Call(path=PATH, body={**ASK, "stream": True}),),
        model=says("a", 0.5, "b"),
        options=ServingOptions(ping_seconds=0.05),
        view=pings_once,
    ),
    refused("no max_tokens", max_tokens=None),
    refused("max_tokens of the wrong type", max_tokens="5"),
    refused("an unknown model", model="ghost"),
    refused("an image", messages=[{"role": "user", "content": [IMAGE]}]),
    refused("a tool of the server", tools=[{"type": "web_search_20250305", "name": "web_search"}]),
    refused("a tool that is not there", tools=TOOLS, tool_choice={"type": "tool", "name": "other"}),
    refused("a thread", thread={"type": "create"}),
    refused("a prompt that is too long", messages=[{"role": "user", "content": "x" * 5000}]),
    refused("what the template refuses", messages=[{"role": "user", "content": "refuse me"}]),
    counted("count_tokens"),
    counted("count_tokens with tools, system and an ignored parameter", tools=TOOLS, system="Be brief.", novel=1),
    counted("count_tokens of a long prompt", messages=[{"role": "user", "content": "x" * 5000}]),
    counted("count_tokens of an unknown model", model="ghost"),
    counted("count_tokens of no messages", messages=[]),
]
