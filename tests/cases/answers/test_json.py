"""Area json: a schema is obeyed, or it is refused by the path of what cannot be."""

import json
import socket
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from tests.cases.real import CHAT_PATH, HI, Json, RealServer

SCHEMAS = json.loads((Path(__file__).parents[2] / "engine/text/constraints/data/schemas.json").read_text())
ROOT = "response_format.json_schema.schema"


def output(schema: Any, **more: Any) -> Json:
    return {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": schema, **more}}


def an_object(schema: Any) -> Json:
    return {"type": "object", "properties": {"x": schema}, "required": ["x"], "additionalProperties": False}


REFUSED: dict[str, tuple[Any, str]] = {
    "lookahead": ({"type": "string", "pattern": "^(?=look)ahead$"}, "pattern"),
    "lookbehind": ({"type": "string", "pattern": "(?<=a)b"}, "pattern"),
    "backreference": ({"type": "string", "pattern": r"(a)\1"}, "pattern"),
    "unevaluatedProperties": ({"unevaluatedProperties": False}, "unevaluatedProperties"),
    "$dynamicRef": ({"$dynamicRef": "#x"}, "$dynamicRef"),
    "if and then": ({"if": {"type": "string"}, "then": {"minLength": 3}}, "if"),
    "not": ({"not": {"type": "null"}}, "not"),
    "remote reference": ({"$ref": "https://schemas.example.com/a.json"}, "$ref"),
    "reference to a file": ({"$ref": "file:///etc/passwd"}, "$ref"),
    "contains": ({"type": "array", "contains": {"type": "null"}}, "contains"),
    "uniqueItems": ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    "an unknown keyword": ({"minimun": 3}, "minimun"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_enforced_is_refused_by_its_path(plain: RealServer, name: str) -> None:
    """BB-043: the grammar cannot be compiled, the server logs it, and answers 200 without one."""
    schema, keyword = REFUSED[name]
    error = plain.refusal(CHAT_PATH, {"messages": HI, "response_format": output(an_object(schema)), "max_tokens": 200})
    assert error["param"] == f"{ROOT}.properties.x.{keyword}"
    assert len(error["message"]) < 500


@pytest.mark.parametrize("field", ["guided_json", "json_schema", "structured_outputs"])
def test_so_it_is_under_every_name_that_a_schema_has(plain: RealServer, field: str) -> None:
    """BB-043: vLLM's and llama-server's names for a schema."""
    schema = an_object({"type": "string", "pattern": "^(?=look)ahead$"})
    error = plain.refusal(
        CHAT_PATH, {"messages": HI, field: {"json": schema} if field == "structured_outputs" else schema}
    )
    assert error["param"].startswith(field) and error["param"].endswith("properties.x.pattern")
    accepted = {"type": "boolean"}
    (choice,) = plain.choices(**{field: {"json": accepted} if field == "structured_outputs" else accepted})
    assert json.loads(choice.content) in (True, False)


def test_strict_tools_are_held_to_the_same(calls: RealServer) -> None:
    """BB-043: the parameters of a strict function."""
    function: Json = {"name": "f", "strict": True, "parameters": an_object({"not": {}})}
    error = calls.refusal(CHAT_PATH, {"messages": HI, "tools": [{"type": "function", "function": function}]})
    assert error["param"] == "tools[0].function.parameters.properties.x.not"


@pytest.mark.parametrize("entry", SCHEMAS, ids=lambda entry: str(entry["name"]))
def test_an_answer_that_ends_by_itself_is_valid(plain: RealServer, entry: Any) -> None:
    """BB-043: supported schemas are always obeyed, by random weights at temperature 1.5 too."""
    closing = {str(plain.token(mark)): 3 for mark in '}]"'}  # else random answers seldom come to their end
    answer = plain.chat(
        response_format=output(entry["schema"]), temperature=1.5, seed=1, n=4, max_tokens=150, logit_bias=closing
    )
    for choice in answer["choices"]:
        if choice["finish_reason"] == "stop":
            jsonschema.validate(
                json.loads(choice["message"]["content"]), entry["schema"], jsonschema.Draft202012Validator
            )


def test_json_object_is_an_object(thinks: RealServer) -> None:
    """BB-043: the form without a schema, after thinking."""
    fields: Json = {"response_format": {"type": "json_object"}, "max_tokens": 200, "thinking_token_budget": 5}
    bias = {str(thinks.token("}")): 4}
    for choice in thinks.choices(**fields, n=6, temperature=1.5, logit_bias=bias):
        assert choice.content.lstrip().startswith("{")
        if choice.finish == {"finish_reason": "stop"}:
            assert isinstance(json.loads(choice.content), dict)


LEAF: Json = {"type": "integer", "minimum": 0, "maximum": 9}
PAIR = {"l": {"$ref": "#/properties/tree"}, "r": {"$ref": "#/properties/tree/anyOf/0"}}
NODE = {"type": "object", "properties": PAIR, "required": ["l", "r"], "additionalProperties": False}
ODD = {"a/b": {"%": LEAF, "x~y": {"enum": ["z"]}}}
POINTERS: dict[str, Json] = {
    "into properties and arrays": an_object({}) | {
        "properties": {
            "tree": {"anyOf": [LEAF, NODE]},
        },
        "required": ["tree"],
    },
    "escaped": {"$defs": ODD, **an_object({"$ref": "#/$defs/a~1b/%25"})},
    "escaped twice": {"$defs": ODD, **an_object({"$ref": "#/$defs/a~1b/x~0y"})},
    "to the root": {
        "type": "object",
        "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}},
        "required": ["next"],
        "additionalProperties": False,
    },
    "to a reference": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": LEAF}, **an_object({"$ref": "#/$defs/a"})},
}  # fmt: skip


@pytest.mark.parametrize("name", POINTERS)
def test_references_by_any_pointer_are_enforced(plain: RealServer, name: str) -> None:
    """BB-046: only "#/$defs/X" works; recursion is bounded by max_tokens alone."""
    schema = POINTERS[name]
    likely = {str(plain.token(digit)): 4 for digit in "0123456789n"}  # leaves, lest the tree grow for ever
    answer = plain.chat(response_format=output(schema), temperature=1.5, seed=2, n=8, max_tokens=200, logit_bias=likely)
    ended = [choice["message"]["content"] for choice in answer["choices"] if choice["finish_reason"] == "stop"]
    assert ended
    for text in ended:
        jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator)


def test_deep_nesting_is_enforced(plain: RealServer) -> None:
    """BB-046: 30 objects in each other."""
    schema = LEAF
    for _ in range(30):
        schema = an_object(schema)
    (choice,) = plain.choices(response_format=output(schema), max_tokens=400, logit_bias={str(plain.token("\n")): -100})
    jsonschema.validate(json.loads(choice.content), schema)


@pytest.mark.parametrize(
    "reference", ["https://schemas.example.com/a.json", "http://127.0.0.1:9/x", "//x/y", "a.json#/b", "urn:x"]
)
def test_a_remote_reference_is_never_followed(
    plain: RealServer, reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BB-046: it is refused, and no name is looked up for it."""
    asked: list[object] = []
    look_up = socket.getaddrinfo

    def noted(host: Any, *more: Any, **named: Any) -> Any:
        asked.append(host)
        return look_up(host, *more, **named)

    plain.complete(max_tokens=1)  # the client's own connection is there
    monkeypatch.setattr(socket, "getaddrinfo", noted)
    error = plain.refusal(CHAT_PATH, {"messages": HI, "response_format": output(an_object({"$ref": reference}))})
    assert (error["param"], asked) == (f"{ROOT}.properties.x.$ref", [])
