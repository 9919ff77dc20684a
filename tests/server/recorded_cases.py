"""The requests whose answers are recorded, byte for byte: every API, whole and as a stream, and every kind of error."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.errors import EngineFaultError
from engine.formats.parts import CallArguments, CallBegin, CallEnd, Content, Reasoning
from server.settings import ServingOptions
from tests.server.parted import parted_model
from tests.server.scripted_engine import ScriptedModel, ScriptedService, scripted_model

Model = Callable[[], ScriptedModel]
Json = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """One request. `{id}` in a path is the id of the answer before it."""

    path: str
    body: Json | bytes | None = None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """Calls to one server, in their order."""

    name: str
    model: Model
    calls: Sequence[Call]
    options: ServingOptions = field(default_factory=ServingOptions)


def hello() -> ScriptedModel:
    return scripted_model("Hello", " wörld", ".")


def broken() -> ScriptedModel:
    return scripted_model("a", EngineFaultError("The server failed on this request."))


def full() -> ScriptedModel:
    return ScriptedModel(ScriptedService(("x",), max_open=0))


def thinker() -> ScriptedModel:
    return parted_model(Reasoning("Let me"), Reasoning(" see."), Content("I "), Content("look."), *call(0), *call(1))


def call(number: int) -> tuple[CallBegin, CallArguments, CallArguments, CallEnd]:
    pieces = ('{"where": ', '"up\\n"}')
    return (
        CallBegin(number, "look"),
        CallArguments(number, pieces[0]),
        CallArguments(number, pieces[1]),
        CallEnd(number),
    )


HI = [{"role": "user", "content": "Hi"}]
SCHEMA = {"type": "object", "properties": {"where": {"type": "string"}}, "required": ["where"]}
CHAT_TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": SCHEMA}}
MESSAGES_TOOL = {"name": "look", "description": "Looks.", "input_schema": SCHEMA}
RESPONSES_TOOL = {"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}
FORM = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}


def chat(**fields: Any) -> Call:
    return Call("/v1/chat/completions", {"model": "scripted", "messages": HI, **fields})


def completion(**fields: Any) -> Call:
    return Call("/v1/completions", {"model": "scripted", "prompt": "Once", **fields})


def message(**fields: Any) -> Call:
    return Call("/v1/messages", {"model": "scripted", "messages": HI, "max_tokens": 50, **fields})


def response(**fields: Any) -> Call:
    return Call("/v1/responses", {"model": "scripted", "input": "Hi", **fields})


def get(path: str, method: str = "GET", **headers: str) -> Call:
    return Call(path, None, method, {name.replace("_", "-"): value for name, value in headers.items()})


def both(make: Callable[..., Call], **fields: Any) -> tuple[Call, Call]:
    """The whole answer, and the stream."""
    return make(**fields), make(**fields, stream=True)


CHAT_CASES = (
    Case("chat_plain", hello, both(chat)),
    Case("chat_usage_and_timings", hello, [chat(stream=True, stream_options={"include_usage": True}), chat(n=2)]),
    Case("chat_several", hello, [chat(n=2, stream=True, stream_options={"include_usage": True})]),
    Case("chat_logprobs", hello, both(chat, logprobs=True, top_logprobs=2)),
    Case("chat_length_and_stop", hello, [*both(chat, max_tokens=1), *both(chat, stop=["örl"])]),
    Case("chat_ignored", hello, [chat(store=True, user="me", wishful=1), chat(extra_body={"top_k": 3})]),
    Case("chat_tools", thinker, both(chat, tools=[CHAT_TOOL])),
    Case("chat_tool_choice", thinker, both(chat, tools=[CHAT_TOOL], tool_choice="required", parallel_tool_calls=False)),
    Case("chat_form", hello, both(chat, response_format=FORM)),
    Case("chat_fault", broken, both(chat)),
    Case("chat_reasoning_field", thinker, both(chat), ServingOptions(reasoning_field="reasoning_content")),
    Case("chat_cache_report", hello, [chat(cache_report=True), chat(return_token_ids=True)]),
    Case("completions", hello, both(completion)),
    Case("completions_several", hello, both(completion, prompt=["One", "Two"], n=2)),
    Case(
        "completions_echo",
        hello,
        [completion(echo=True, logprobs=1, max_tokens=2), completion(echo=True, max_tokens=0)],
    ),
    Case("completions_suffix", hello, both(completion, suffix="end")),
    Case("completions_fault", broken, both(completion)),
)

MESSAGES_CASES = (
    Case("messages_plain", hello, both(message)),
    Case("messages_thinking_and_tools", thinker, both(message, tools=[MESSAGES_TOOL])),
    Case("messages_stop", hello, [*both(message, stop_sequences=["örl"]), *both(message, max_tokens=1)]),
    Case("messages_system", hello, both(message, system=[{"type": "text", "text": "Be brief."}], metadata={"a": "b"})),
    Case("messages_fault", broken, both(message)),
    Case("messages_errors", hello, [message(max_tokens="x"), message(model="gpt-99"), message(messages=[])]),
    Case("messages_count", hello, [Call("/v1/messages/count_tokens", {"model": "scripted", "messages": HI})]),
)

RESPONSES_CASES = (
    Case("responses_plain", hello, both(response)),
    Case("responses_thinking_and_tools", thinker, both(response, tools=[RESPONSES_TOOL])),
    Case("responses_logprobs", hello, both(response, include=["message.output_text.logprobs"], top_logprobs=1)),
    Case("responses_incomplete", hello, both(response, max_output_tokens=1)),
    Case("responses_said_again", hello, both(response, instructions="Be brief.", temperature=0.5, metadata={"k": "v"})),
    Case("responses_fault", broken, both(response)),
    Case("responses_errors", hello, [response(input=3), response(model="gpt-99"), response(previous_response_id="x")]),
    Case("responses_count", hello, [Call("/v1/responses/input_tokens", {"input": "Hi"})]),
    Case(
        "responses_kept",
        hello,
        [
            response(),
            get("/v1/responses/{id}"),
            get("/v1/responses/{id}/input_items"),
            get("/v1/responses/{id}/input_items?order=asc&limit=1"),
            Call("/v1/responses/{id}/cancel"),
            get("/v1/responses/{id}", "DELETE"),
        ],
    ),
)

TEXT_CASES = (
    Case(
        "embeddings",
        hello,
        [
            Call("/v1/embeddings", {"model": "scripted", "input": ["One", "Two"]}),
            Call("/v1/embeddings", {"model": "scripted", "input": "One", "encoding_format": "base64", "dimensions": 8}),
            Call("/v1/embeddings", {"model": "scripted", "input": []}),
        ],
    ),
    Case(
        "tokens",
        hello,
        [
            Call("/v1/tokenize", {"prompt": "Hi ü", "return_token_strs": True}),
            Call("/v1/tokenize", {"messages": HI}),
            Call("/v1/detokenize", {"tokens": [72, 105]}),
            Call("/v1/apply-template", {"messages": HI}),
            Call("/v1/chat/completions/render", {"messages": HI}),
            Call("/v1/chat/completions/input_tokens", {"messages": HI}),
        ],
    ),
)

KEYED = ServingOptions(api_keys=("secret",))
STATUS_CASES = (
    Case("models", hello, [get("/v1/models"), get("/models"), get("/v1/models/gpt-4o"), get("/v1/models/no")]),
    Case("health", hello, [get("/health"), get("/ready"), get("/"), get("/v1/capabilities")]),
    Case("props", hello, [get("/props"), get("/slots")]),
    Case("cancel", hello, [Call("/v1/requests/nothing/cancel"), get("/v1/requests/nothing/cancel")]),
    Case(
        "keys",
        hello,
        [
            get("/v1/models"),
            get("/v1/models", authorization="Bearer wrong"),
            get("/v1/models", authorization="Bearer secret"),
            get("/v1/models", x_api_key="secret"),
            message(),
            get("/health"),
            get("/openapi.json"),
        ],
        KEYED,
    ),
)

JSON = {"content-type": "application/json"}
ERROR_CASES = (
    Case(
        "errors_body",
        hello,
        [
            Call("/v1/chat/completions", b'{"model": ', headers=JSON),
            Call("/v1/chat/completions", b"[]", headers=JSON),
            Call("/v1/chat/completions", b"x=1", headers={"content-type": "application/x-www-form-urlencoded"}),
            Call("/v1/chat/completions", b"[" * 2000, headers=JSON),
            Call("/v1/messages", b'{"model": ', headers=JSON),
            Call("/v1/responses", b'{"model": ', headers=JSON),
        ],
    ),
    Case(
        "errors_fields",
        hello,
        [
            chat(temperature="hot"),
            chat(messages=[]),
            chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]),
            chat(tools=[CHAT_TOOL], tool_choice={"type": "function", "function": {"name": "none"}}),
            chat(model="gpt-99"),
            completion(prompt=3.5),
            completion(n=99),
        ],
    ),
    Case("errors_strict", hello, [chat(store=True), message(metadata={"a": 1})], ServingOptions(strict_params=True)),
    Case("errors_length", lambda: ScriptedModel(context_length=20), [*both(chat), message(), response(), completion()]),
    Case("errors_full", full, [*both(chat), message(), response(), Call("/v1/embeddings", {"input": "x"})]),
    Case(
        "errors_large",
        hello,
        [chat(messages=[{"role": "user", "content": "x" * 3000}])],
        ServingOptions(max_body_bytes=2000),
    ),
    Case(
        "errors_path",
        hello,
        [get("/v1/nothing"), get("/v1/chat/completions"), get("/v1/models", "POST"), get("/v1/messages")],
    ),
    Case(
        "sites",
        hello,
        [
            get("/v1/models", origin="http://localhost:3000"),
            get("/v1/models", origin="https://example.com"),
            get("/v1/models", host="example.com"),
            get("/v1/models", "OPTIONS", origin="http://localhost:3000", access_control_request_method="GET"),
            get("/v1/models", "HEAD"),
            get("/health", "HEAD"),
        ],
    ),
)

CASES = (*CHAT_CASES, *MESSAGES_CASES, *RESPONSES_CASES, *TEXT_CASES, *STATUS_CASES, *ERROR_CASES)
