"""Area tools: a call's deltas join to what the whole answer has, and arguments are JSON, escaped once."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.real import CHAT_PATH, HI, Json, RealServer, serving, tiny_model
from tests.engine.text.vocabularies import load
from tests.server.scripted.joined import events

HARD = "a\"b\\c\nd\te/é😀</tool_call>'"
# Templates by the format of calls that they tell of.
FORMATS = {
    "hermes": "Qwen-Qwen2.5-7B-Instruct",
    "qwen_xml": "Qwen3-Coder",
    "llama3": "meta-llama-Llama-3.1-8B-Instruct",
    "deepseek_v3.1": "deepseek-ai-DeepSeek-V3.1",
    "deepseek_v3.2": "deepseek-ai-DeepSeek-V3.2",
    "kimi_k2": "moonshotai-Kimi-K2",
}


def tool(name: str, schema: Json | None = None) -> Json:
    parameters = {"type": "object", "properties": {"s": schema or {}}, "required": ["s"], "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


class Accumulator:
    """What a strict client makes of a stream: by the words of the API, and no more lenient than they are."""

    def __init__(self) -> None:
        self.content = ""
        self.calls: list[Json] = []
        self.finish: str | None = None

    def take(self, chunk: Json) -> None:
        for choice in chunk["choices"]:
            self.content += choice["delta"].get("content") or ""
            for delta in choice["delta"].get("tool_calls", []):
                self._take_call(delta)
            self.finish = choice["finish_reason"] or self.finish

    def _take_call(self, delta: Json) -> None:
        if delta["index"] == len(self.calls):
            assert delta["type"] == "function" and delta["id"].startswith("call_") and delta["function"]["name"]
            self.calls.append({"id": delta["id"], "name": delta["function"]["name"], "arguments": ""})
        else:
            assert delta["index"] == len(self.calls) - 1
            assert delta.keys() == {"index", "function"} and delta["function"].keys() == {"arguments"}
        call = self.calls[delta["index"]]
        call["arguments"] += delta["function"]["arguments"]
        call["arguments"].encode()  # no half of a surrogate pair


def streamed(server: RealServer, **fields: Any) -> Accumulator:
    body = {"messages": HI, "seed": 1, **fields, "stream": True}
    accumulator = Accumulator()
    for chunk in events(server.post(CHAT_PATH, body).content.decode()):
        accumulator.take(chunk)
    return accumulator


def test_two_calls_have_two_indices_and_two_ids(calls: RealServer) -> None:
    """BB-037: no index, a new id on each delta, a name said twice, a second call at index 0."""
    fields: Json = {"tools": [tool("f", {"enum": ["x"]}), tool("g", {"enum": ["y"]})], "tool_choice": "required"}
    fields |= {"max_tokens": 400, "temperature": 1}
    counts = set()
    for seed in range(8):
        whole = calls.chat(**fields, seed=seed)["choices"][0]
        stream = streamed(calls, **fields, seed=seed)
        assert [(call["name"], call["arguments"]) for call in stream.calls] == [
            (call["function"]["name"], call["function"]["arguments"]) for call in whole["message"]["tool_calls"]
        ]
        assert (stream.content, whole["message"]["content"]) == ("", None)
        assert len({call["id"] for call in stream.calls}) == len(stream.calls)
        counts.add(len(stream.calls))
    assert max(counts) > 1


def test_ids_are_never_given_twice(calls: RealServer) -> None:
    """BB-037: over many calls of one process."""
    fields: Json = {"tools": [tool("f", {"enum": ["x"]})], "tool_choice": "required", "parallel_tool_calls": False}
    answers = [calls.chat(**fields, n=16, max_tokens=60) for _ in range(4)]
    ids = [call["id"] for answer in answers for choice in answer["choices"] for call in choice["message"]["tool_calls"]]
    assert len(set(ids)) == len(ids) == 64


@pytest.mark.parametrize("name", FORMATS)
def test_arguments_are_escaped_once_in_every_format(tmp_path: Path, name: str) -> None:
    """BB-039: a line break arrives as two characters, a quote ends the process, a tag in a string ends the call."""
    template = load("templates")[FORMATS[name]]
    with serving(tiny_model(tmp_path, "calls", chat_template=template)) as server:
        assert server.live.model.format.tools.name == name
        fields: Json = {
            "tools": [tool("w", {"type": "string", "enum": [HARD]})],
            "tool_choice": {"type": "function", "function": {"name": "w"}},
            "parallel_tool_calls": False,
            "max_tokens": 800,
        }
        (choice,) = server.choices(**fields)
        stream = streamed(server, **fields)
    assert [json.loads(call["arguments"]) for call in choice.calls] == [{"s": HARD}]
    assert choice.content == stream.content == ""
    assert [call["arguments"] for call in choice.calls] == [call["arguments"] for call in stream.calls]


VALUES: list[Any] = [
    "\\", '"', "\\n", "\n", "\t\r\b\f", "</tool_call>", "<tool_call>", "<think>", "{}", '{"a": "b"}', "\u2028",
    " ", "", "\\u0041", "/", "日本\n語", ["a", {"b": None}], {"k\"": -1.5e3}, True, 0, [], {},
]  # fmt: skip


@pytest.mark.parametrize("kind", ["calls", "thinks"])
def test_any_value_comes_back_as_it_is(request: pytest.FixtureRequest, kind: str) -> None:
    """BB-039: strings of quotes, escapes, tags and control characters, and values that are no strings."""
    server: RealServer = request.getfixturevalue(kind)
    values = {f"v{place}": value for place, value in enumerate(VALUES)}
    properties = {name: {"const": value} for name, value in values.items()}
    schema = {"type": "object", "properties": properties, "required": [*values], "additionalProperties": False}
    fields: Json = {"tools": [{"type": "function", "function": {"name": "w", "parameters": schema}}]}
    fields |= {"tool_choice": "required", "parallel_tool_calls": False, "thinking_token_budget": 2}
    (choice,) = server.choices(**fields, max_tokens=2000)
    assert [json.loads(call["arguments"]) for call in choice.calls] == [values]
    assert choice.content == "" and choice.finish == {"finish_reason": "tool_calls"}
