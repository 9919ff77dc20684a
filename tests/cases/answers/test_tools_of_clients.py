"""Area tools: schemas as generators write them, and tools where the model's template has no place for tools."""

import json
import re
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from tests.cases.real import CHAT_PATH, HI, Json, RealServer
from tests.server.scripted.joined import events

OK: Json = {"type": "function", "function": {"name": "ok", "parameters": {"type": "object"}}}
TOWN: Json = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
FORM: Json = {"type": "json_schema", "json_schema": {"name": "out", "schema": TOWN}}


def odd(parameters: Any, **more: Any) -> Json:
    return {"type": "function", "function": {"name": "odd", "parameters": parameters, **more}}


def of(properties: Any, **more: Any) -> Json:
    return {"type": "object", "properties": properties, **more}


def ignored(server: RealServer, **fields: Any) -> list[str]:
    """What the answer says it left out; it is no refusal."""
    answer = server.post(CHAT_PATH, {"messages": HI, "max_tokens": 4, **fields})
    assert answer.status_code == 200, answer.text
    return [name for name in answer.headers.get("x-ignored-params", "").split(",") if name]


def arguments(server: RealServer, tool: Json, seed: int) -> Any:
    """The arguments of a call that has to be made."""
    fields: Json = {"tools": [tool, OK], "tool_choice": {"type": "function", "function": {"name": "odd"}}}
    [call] = server.chat(**fields, max_tokens=400, seed=seed, temperature=1)["choices"][0]["message"]["tool_calls"]
    return json.loads(call["function"]["arguments"])


@pytest.mark.parametrize("where", ["calls", "words"])
@pytest.mark.parametrize("choice", [{}, {"tool_choice": "auto"}])
def test_bounds_of_draft_4_are_read(where: str, choice: Json, request: pytest.FixtureRequest) -> None:
    """NB-10: keywords of an older draft of JSON schema in one tool must not end a session."""
    server: RealServer = request.getfixturevalue(where)
    tool = odd(of({"ttl": {"type": "integer", "minimum": 0, "exclusiveMinimum": True}}))
    assert ignored(server, tools=[tool, OK], **choice) == []


def test_a_bound_of_draft_4_binds(calls: RealServer) -> None:
    """NB-10: keywords of an older draft of JSON schema mean there what they mean in today's."""
    bounds = {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "maximum": 3, "exclusiveMaximum": True}
    found = {arguments(calls, odd(of({"ttl": bounds}, required=["ttl"])), seed)["ttl"] for seed in range(8)}
    assert found <= {1, 2}


@pytest.mark.parametrize("where", ["calls", "words"])
def test_bounds_of_64_bits_say_nothing(where: str, request: pytest.FixtureRequest) -> None:
    """NB-11: the limits of a language's own number types are no limits, in tools and in forms."""
    server: RealServer = request.getfixturevalue(where)
    number = {"type": "number", "maximum": 1.7976931348623157e308, "minimum": -1.7976931348623157e308}
    schemas = [
        of({"n": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}, "x": number}),
        of({"n": {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}}),
    ]
    for schema in schemas:
        assert ignored(server, tools=[odd(schema), OK]) == []
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        assert ignored(server, response_format=form) == []


@pytest.mark.parametrize(
    "parameters",
    [
        of([], required=[]),
        of({}, required=None),
        of({"q": {"enum": []}}),
        of({"q": {"type": "any"}}),
        of({"q": {"type": "string", "required": True}}),
        of({"q": {"type": "strnig"}}),
        of({"q": {"$ref": "#/nowhere"}}),
        of("none"),
        [],
        None,
        "none",
        {"properties": {"q": {"type": "string"}}},
        {"type": "OBJECT", "properties": {"q": {"type": "STRING"}}},
    ],
)
def test_malformed_schemas_end_no_session(calls: RealServer, parameters: Any) -> None:
    """NB-12: generators write schemas that are malformed; each frees its own part and no more."""
    ignored(calls, tools=[odd(parameters), OK])
    found = ignored(calls, tools=[odd(parameters), OK], tool_choice="required")
    assert all(path.startswith("tools[0].function.parameters") for path in found)


def test_an_empty_list_is_an_empty_object(calls: RealServer) -> None:
    """NB-12: a language whose empty map is an empty list."""
    assert ignored(calls, tools=[odd(of([], required=[])), OK]) == []
    assert arguments(calls, odd(of([], required=[])), 1) == {}


def test_a_strict_tool_is_refused_by_the_path_of_what_is_wrong(calls: RealServer) -> None:
    """NB-12: who asks for strict arguments is told what cannot be kept."""
    error = calls.refusal(CHAT_PATH, {"messages": HI, "tools": [odd(of({"q": {"type": "strnig"}}), strict=True)]})
    assert error["param"] == "tools[0].function.parameters.properties.q.type"


@pytest.mark.parametrize("where", ["calls", "words", "thinks"])
@pytest.mark.parametrize("form", [FORM, {"type": "json_object"}], ids=["schema", "object"])
def test_a_form_and_tools_go_together(where: str, form: Json, request: pytest.FixtureRequest) -> None:
    """NB-15: the last answer of an agent has a form, and calls may come before it."""
    server: RealServer = request.getfixturevalue(where)
    kinds = set()
    for seed in range(6):
        fields: Json = {"tools": [odd(of({})), OK], "tool_choice": "auto", "response_format": form}
        fields |= {"messages": HI, "max_tokens": 600, "seed": seed, "temperature": 1, "thinking_token_budget": 8}
        whole = server.chat(**fields)["choices"][0]
        deltas = [
            chunk["choices"][0]["delta"] for chunk in events(server.post(CHAT_PATH, {**fields, "stream": True}).text)
        ]
        assert "".join(delta.get("content") or "" for delta in deltas) == (whole["message"]["content"] or "")
        if whole["finish_reason"] == "length":
            continue
        kinds.add(whole["finish_reason"])
        if whole["finish_reason"] == "tool_calls":
            assert not whole["message"]["content"]
            assert {call["function"]["name"] for call in whole["message"]["tool_calls"]} <= {"odd", "ok"}
        else:
            jsonschema.validate(json.loads(whole["message"]["content"]), TOWN if form is FORM else {"type": "object"})
    assert kinds


@pytest.mark.parametrize("path", ["/v1/responses"])
def test_a_form_and_tools_go_together_in_responses(calls: RealServer, path: str) -> None:
    """NB-15: the same in the fields of another API."""
    tool = {"type": "function", "name": "odd", "parameters": of({})}
    text = {"format": {"type": "json_schema", "name": "out", "schema": TOWN}}
    answer = calls.answer(path, {"input": "Hi", "tools": [tool], "text": text, "max_output_tokens": 300})
    assert {item["type"] for item in answer["output"]} <= {"function_call", "message"}


def test_tools_are_told_in_words_where_the_template_has_no_place_for_tools(words: RealServer) -> None:
    """NB-04: a template without tools is no reason to refuse an agent."""
    prompt = words.prompt(HI, tools=[odd(of({"q": {"type": "string"}}))])
    assert '"name": "odd"' in prompt and "<tool_call>" in prompt
    fields: Json = {"tools": [odd(of({"q": {"enum": ["x", "y"]}}, required=["q"]))], "tool_choice": "required"}
    choice = words.chat(**fields, max_tokens=200, temperature=1, seed=1)["choices"][0]
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])["q"] in ("x", "y")
    assert words.http.get("/v1/capabilities").json()["abilities"]["tools_in_words"] is True


PATCH = """start: begin (add | remove)+ end
begin: "*** Begin" LF
add: "+" /[a-z\\"]{1,5}/ LF
remove: "-" /[0-9]{1,3}/ LF
end: "*** End" LF?
%import common.LF
"""


@pytest.mark.parametrize("where", ["calls", "words"])
@pytest.mark.parametrize(
    ("syntax", "definition", "pattern"),
    [
        ("lark", PATCH, r'\*\*\* Begin\n(\+[a-z\\"]{1,5}\n|-[0-9]{1,3}\n)+\*\*\* End\n?'),
        ("regex", r'[a-c"\n]{2,9}!', r'[a-c"\n]{2,9}!'),
    ],
)
def test_the_text_of_a_custom_tool_is_bound(
    where: str, syntax: str, definition: str, pattern: str, request: pytest.FixtureRequest
) -> None:
    """NB-04: a tool whose input is one text with a grammar, whole and streamed."""
    server: RealServer = request.getfixturevalue(where)
    grammar = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    tool = {"type": "custom", "custom": {"name": "edit", "description": "edits", "format": grammar}}
    fields: Json = {"tools": [tool, OK], "tool_choice": {"type": "custom", "custom": {"name": "edit"}}}
    fields |= {"messages": HI, "max_tokens": 500, "temperature": 1}
    assert ignored(server, tools=[tool, OK]) == []
    for seed in range(3):
        choice = server.chat(**fields, seed=seed)["choices"][0]
        [call] = choice["message"]["tool_calls"]
        assert (call["type"], call["custom"]["name"], "function" in call) == ("custom", "edit", False)
        if choice["finish_reason"] == "tool_calls":
            assert re.fullmatch(pattern, call["custom"]["input"])
        stream = events(server.post(CHAT_PATH, {**fields, "seed": seed, "stream": True}).text)
        deltas = [each for chunk in stream for each in chunk["choices"][0]["delta"].get("tool_calls", [])]
        assert "".join(delta["custom"].get("input", "") for delta in deltas) == call["custom"]["input"]
