"""Recorded cases of POST /v1/responses, and of what is asked of a response that is kept."""

from typing import Any

from engine.api.request import FinishReason
from engine.errors import EngineFaultError
from server.settings import ServingOptions
from tests.server.recorded_cases.chat import ONE, SCHEMA, TWO, thinker
from tests.server.recorded_cases.exchange import NAMED, Build, Call, Case, says, whole_and_streamed

PATH = "/v1/responses"
COUNT = "/v1/responses/input_tokens"
ASK: dict[str, Any] = {"model": "scripted", "input": "Hi"}
HELLO = says("Hello", " wörld")
TOOLS = [
    {"type": "function", "name": "one", "description": "first", "parameters": {"type": "object"}},
    {"type": "function", "name": "two"},
]
MESSAGES = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]},
    {"type": "function_call", "call_id": "c1", "name": "one", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "17"},
    {"role": "user", "content": [{"type": "input_text", "text": "And?"}]},
]
LOGPROBS: dict[str, Any] = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
FORMAT = {"format": {"type": "json_schema", "name": "weather", "schema": SCHEMA}}
BROKEN = EngineFaultError("Broken.")
GET = Call(method="GET", path=f"{PATH}/{NAMED}")
ITEMS = Call(method="GET", path=f"{PATH}/{NAMED}/input_items")
DELETE = Call(method="DELETE", path=f"{PATH}/{NAMED}")
NEXT = {**ASK, "input": "Then", "previous_response_id": NAMED}


def both(name: str, model: Build = HELLO, options: ServingOptions | None = None, **fields: Any) -> list[Case]:
    return whole_and_streamed("responses", name, PATH, {**ASK, **fields}, model=model, options=options)


def calls(name: str, *sent: Call, model: Build = HELLO) -> Case:
    return Case(api="responses", name=name, calls=sent, model=model)


def post(path: str = PATH, **fields: Any) -> Call:
    return Call(path=path, body={**ASK, **fields})


def items_by(query: str) -> Call:
    return Call(method="GET", path=f"{ITEMS.path}?{query}")


CASES: list[Case] = [
    *both("text"),
    *both("an empty answer", says()),
    *both("instructions, metadata and sampling", instructions="Be brief.", metadata={"a": "b"}, temperature=0.5),
    *both("items as input", input=MESSAGES, tools=TOOLS),
    *both("reasoning", thinker),
    *both("reasoning effort none", thinker, reasoning={"effort": "none"}),
    *both("reasoning cut by max_output_tokens", thinker, max_output_tokens=2),
    *both("a function call", says(*ONE), tools=TOOLS),
    *both("text and two function calls", says("I look.", *ONE, *TWO), tools=TOOLS, parallel_tool_calls=True),
    *both("parallel_tool_calls off", says(*ONE), tools=TOOLS, parallel_tool_calls=False),
    *both("tool_choice names a function", says(*TWO), tools=TOOLS, tool_choice={"type": "function", "name": "two"}),
    *both("a function call cut by max_output_tokens", says(*ONE), tools=TOOLS, max_output_tokens=2),
    *both("logprobs", **LOGPROBS),
    *both("logprobs beside reasoning", thinker, **LOGPROBS),
    *both("structured output", says('{"sky": ', '"blue"}'), text=FORMAT),
    *both("incomplete by max_output_tokens", says("a", "b", "c"), max_output_tokens=2),
    *both("incomplete by the context", says("a", FinishReason.LENGTH)),
    *both("ignored parameters", user="u", novel=1, service_tier="auto"),
    *both("what would be ignored, on a strict server", options=ServingOptions(strict_params=True), novel=1),
    *both("the engine fails midway", says("a", BROKEN)),
    *both("the engine fails in a call after text", says("Hi", *ONE[:2], BROKEN), tools=TOOLS),
    calls("kept, read, listed and deleted", post(), GET, ITEMS, DELETE, GET, DELETE, ITEMS),
    calls("kept from a stream", post(stream=True), GET),
    calls("not kept", post(store=False), GET),
    calls(
        "pages of items",
        post(input=MESSAGES, tools=TOOLS),
        items_by("order=asc"),
        items_by("order=asc&limit=2"),
        items_by("limit=1"),
        items_by("order=up"),
        items_by("limit=0"),
        items_by("after=nothing"),
    ),
    calls("previous_response_id", post(), Call(path=PATH, body=NEXT), Call(path=COUNT, body=NEXT)),
    calls("previous_response_id, streamed", post(), Call(path=PATH, body={**NEXT, "stream": True})),
    calls("a previous response that is not there", post(previous_response_id="resp_none")),
    calls("a response that is not there", Call(method="GET", path=f"{PATH}/resp_none")),
    calls("a kept response is not streamed", post(), Call(method="GET", path=f"{GET.path}?stream=true")),
    calls("a kept response cannot be cancelled", post(), Call(path=f"{GET.path}/cancel")),
    calls("input_tokens", Call(path=COUNT, body={"input": "Hi", "instructions": "Be brief.", "novel": 1})),
    calls("an unknown model", post(model="ghost")),
    calls("no input", post(input=[])),
    calls("an unknown item", post(input=[{"type": "web_search_call", "id": "ws_1"}])),
    calls("a tool of the server", post(tools=[{"type": "web_search"}])),
    calls("a prompt that is too long", post(input="x" * 5000)),
]
