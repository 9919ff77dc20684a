"""Recorded cases of POST /v1/chat/completions."""

from typing import Any

from engine.api.request import Request
from engine.errors import EngineFaultError
from server.settings import ServingOptions
from tests.server.harness import CHAT
from tests.server.recorded_cases.exchange import Build, Call, Case, says, whole_and_streamed
from tests.server.scripted.cache import ScriptedCache
from tests.server.scripted.engine import Mark, PlainTemplate, ScriptedModel, ScriptedService, Step

PATH = "/v1/chat/completions"
HELLO = says("Hello", " wörld")
FUNCTIONS: list[dict[str, Any]] = [
    {"name": "one", "description": "first"},
    {"name": "two", "parameters": {"type": "object"}},
]
TOOLS = [{"type": "function", "function": function} for function in FUNCTIONS]
ONE: list[Step] = [Mark("<tool_call>"), '\n{"name": "one", "arguments": {"a": ', "1}}\n", Mark("</tool_call>")]
TWO: list[Step] = [Mark("<tool_call>"), '\n{"name": "two", "arguments": {', "}}\n", Mark("</tool_call>")]
THOUGHT: list[Step] = ["Let me", " see.", Mark("</think>"), "\n\nIt is", " so."]
SCHEMA = {"type": "object", "properties": {"sky": {"type": "string"}}, "required": ["sky"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA}}
ALLOWED = {"mode": "required", "tools": [TOOLS[0]]}


def thinker() -> ScriptedModel:
    return ScriptedModel(ScriptedService(THOUGHT), PlainTemplate(opening="<think>\n"))


def by_choice() -> ScriptedModel:
    def script(request: Request) -> list[Step]:
        return [f"choice {request.choice}", " says", " so"]

    return ScriptedModel(ScriptedService(script))


def caching() -> ScriptedModel:
    model = ScriptedModel()
    model.service.cache = ScriptedCache()
    return model


def both(name: str, model: Build = HELLO, options: ServingOptions | None = None, **fields: Any) -> list[Case]:
    return whole_and_streamed("chat", name, PATH, {**CHAT, **fields}, model=model, options=options)


def streamed(name: str, model: Build = HELLO, **fields: Any) -> Case:
    call = Call(path=PATH, body={**CHAT, "stream": True, **fields})
    return Case(api="chat", name=f"{name}, streamed", calls=(call,), model=model)


def pings_once(body: str) -> str:
    """How many there are depends on how fast the machine is."""
    while ": ping\n\n: ping\n\n" in body:
        body = body.replace(": ping\n\n: ping\n\n", ": ping\n\n")
    return body


USAGE = {"include_usage": True}
LOGPROBS: dict[str, Any] = {"logprobs": True, "top_logprobs": 2}
BROKEN = EngineFaultError("The server failed on this request.")
REASONING_FIELDS = [ServingOptions(reasoning_field=name) for name in ("reasoning_content", "reasoning", "none")]

CASES: list[Case] = [
    *both("plain"),
    *both("an empty answer", says()),
    *both("n=2", by_choice, n=2),
    streamed("n=2 with usage", by_choice, n=2, stream_options=USAGE),
    *both("logprobs", **LOGPROBS),
    *both("logprobs without alternatives", logprobs=True),
    *both("logprobs of two choices", by_choice, n=2, **LOGPROBS),
    *both("a stop string", says("one ", "ST", "OP", " two"), stop=["STOP"]),
    *both("a stop string included", says("one ", "STOP"), stop="STOP", include_stop_str_in_output=True),
    *both("a stop string that does not come", says("one ", "ST", "AY"), stop=["STOP"]),
    *both("max_tokens", says("a", "b", "c"), max_tokens=2),
    *both("one tool call", says(*ONE), tools=TOOLS),
    *both("several tool calls after text", says("I look.", *ONE, *TWO), tools=TOOLS),
    *both("parallel_tool_calls off", says(*ONE), tools=TOOLS, parallel_tool_calls=False),
    *both("a tool call cut by max_tokens", says(*ONE), tools=TOOLS, max_tokens=2),
    *both("tool_choice names a function", says(*TWO), tools=TOOLS, tool_choice=TOOLS[1]),
    *both("tool_choice required", says(*ONE), tools=TOOLS, tool_choice="required"),
    *both("tool_choice none", tools=TOOLS, tool_choice="none"),
    *both("allowed tools", says(*ONE), tools=TOOLS, tool_choice={"type": "allowed_tools", "allowed_tools": ALLOWED}),
    *both("functions", says(*ONE), functions=FUNCTIONS, function_call={"name": "one"}),
    *both("thinking", thinker),
    *both("thinking with logprobs", thinker, **LOGPROBS),
    *both("thinking cut by max_tokens", thinker, max_tokens=2),
    *both("thinking left out", thinker, include_reasoning=False),
    *both("thinking off", thinker, enable_thinking=False),
    *(
        case
        for options in REASONING_FIELDS
        for case in both(f"thinking named {options.reasoning_field}", thinker, options)
    ),
    *both("thinking and a call", says(Mark("<think>"), "Hm.", Mark("</think>"), *ONE), tools=TOOLS),
    *both("json_schema", says('{"sky": ', '"blue"}'), response_format=FORMAT),
    *both("json_object", says('{"sky": ', '"blue"}'), response_format={"type": "json_object"}),
    streamed("include_usage", stream_options=USAGE),
    streamed("no include_usage", stream_options={"include_usage": False}),
    streamed("thinking with usage", thinker, stream_options=USAGE),
    *both("a cache report", caching, cache_report=True),
    *both("token ids and metadata", return_token_ids=True, metadata={"run": "7"}),
    *both("ignored parameters", user="u", service_tier="auto", novel=1, modalities=["text"]),
    *both("ignored parameters on a strict server", options=ServingOptions(strict_params=True), novel=1),
    *both("extra_body", extra_body={"top_k": 5}),
    *both("the engine fails midway", says("a", BROKEN)),
    *both("the engine fails at once", says(BROKEN)),
    *both("the engine fails in one of two choices", says("a", BROKEN), n=2),
    Case(
        api="chat",
        name="an alias of the model",
        calls=(Call(path=PATH, body={**CHAT, "model": "gpt-4o"}),),
        model=HELLO,
    ),
    Case(
        api="chat",
        name="a path without /v1 and with a slash",
        calls=(Call(path="/chat/completions", body=CHAT), Call(path=f"{PATH}/", body=CHAT)),
        model=HELLO,
    ),
    Case(
        api="chat",
        name="silence is filled with pings, streamed",
        calls=(Call(path=PATH, body={**CHAT, "stream": True}),),
        model=says("a", 0.5, "b"),
        options=ServingOptions(ping_seconds=0.05),
        view=pings_once,
    ),
]
