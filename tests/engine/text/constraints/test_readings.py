"""Schemas of other drafts and generators are read as they were meant, and what has no meaning is told."""

from typing import Any

import pytest

from engine.text.constraints.readings import read_as_meant
from engine.text.constraints.rules import free_schema_rule, json_schema_rule
from tests.engine.text.constraints.tokenizers import matches

ROOT = "tools[0].function.parameters"
INT64 = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}


def is_valid(schema: Any, text: str) -> bool:
    return matches(json_schema_rule(schema, param=ROOT), text)


@pytest.mark.parametrize(
    ("schema", "meant"),
    [
        (None, {}),
        ([], {}),
        ({"type": "object", "properties": [], "required": []}, {"type": "object", "properties": {}, "required": []}),
        ({"type": "object", "properties": None, "required": None}, {"type": "object"}),
        ({"properties": {"a": None, "b": []}}, {"properties": {"a": {}, "b": {}}}),
        ({"properties": {"a": "string"}}, {"properties": {"a": {"type": "string"}}}),
        (
            {"properties": {"a": {"type": "string", "required": True}, "b": {"required": False}}, "required": ["c"]},
            {"properties": {"a": {"type": "string"}, "b": {}}, "required": ["c", "a"]},
        ),
        ({"required": {}}, {}),
        ({"required": "a"}, {"required": ["a"]}),
        ({"type": "any"}, {}),
        ({"type": "STRING"}, {"type": "string"}),
        ({"type": ["int", "None"]}, {"type": ["integer", "null"]}),
        ({"minimum": 0, "exclusiveMinimum": True}, {"exclusiveMinimum": 0}),
        ({"minimum": 0, "exclusiveMinimum": False, "maximum": 5, "exclusiveMaximum": True}, None),
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "enum": ["a"], "nullable": True}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"type": "string", "nullable": False}, {"type": "string"}),
        ({"items": [{"type": "null"}], "additionalItems": False}, {"prefixItems": [{"type": "null"}], "items": False}),
        ({"items": [], "type": "array"}, {"type": "array"}),
        ({"maxLength": 3.0}, {"maxLength": 3}),
        ({"const": None, "default": None}, {"const": None, "default": None}),
        ({"anyOf": [{"properties": []}]}, {"anyOf": [{"properties": {}}]}),
        (
            {"$defs": [], "properties": {"type": {"type": "number"}}},
            {"$defs": {}, "properties": {"type": {"type": "number"}}},
        ),
    ],
)
def test_each_form_has_its_plain_meaning(schema: Any, meant: Any) -> None:
    meant = {"minimum": 0, "exclusiveMaximum": 5} if meant is None else meant
    read = read_as_meant(schema, ROOT)
    assert (read.schema, read.faults) == (meant, ())


@pytest.mark.parametrize(
    ("schema", "path", "rest"),
    [
        ({"properties": {"a": {"enum": [], "type": "string"}}}, ".properties.a.enum", {"type": "string"}),
        ({"properties": {"a": {"type": "colour"}}}, ".properties.a.type", {}),
        ({"properties": {"a": 5}}, ".properties.a", {}),
        ({"properties": {"a": {"description": 5}}}, ".properties.a.description", {}),
        ({"properties": {"a": {"anyOf": []}}}, ".properties.a.anyOf", {}),
    ],
)
def test_a_fault_frees_its_own_place(schema: Any, path: str, rest: Any) -> None:
    read = read_as_meant(schema, ROOT)
    assert [fault.path for fault in read.faults] == [ROOT + path]
    assert isinstance(read.schema, dict) and read.schema["properties"] == {"a": rest}


def test_properties_that_cannot_be_read_leave_the_object_open() -> None:
    freed = free_schema_rule({"type": "object", "properties": "x"}, param=ROOT)
    assert freed.freed == (f"{ROOT}.properties",) and matches(freed.rule, '{"a":1}')


def test_a_bound_that_nothing_can_pass_is_left_out() -> None:
    assert is_valid(INT64, "12") and not is_valid(INT64, "1.5")
    assert is_valid({"type": "number", "maximum": 1.7976931348623157e308, "minimum": -3.5e38}, "-1e9")
    assert is_valid({"type": "integer", "maximum": 2**64 - 1, "minimum": 0}, "7")
    assert not is_valid({"type": "integer", "maximum": 2**64 - 1, "minimum": 0}, "-7")
    assert is_valid({"type": "string", "maxLength": 2**31 - 1}, '"a"')


def test_the_draft_4_bound_is_kept() -> None:
    schema = {"type": "integer", "minimum": 0, "exclusiveMinimum": True}
    assert is_valid(schema, "1") and not is_valid(schema, "0")


def test_an_object_that_names_its_properties_is_closed() -> None:
    part = {"type": "object", "properties": {"a": {"type": "integer"}}}
    rule = free_schema_rule({"type": "object", "properties": {"o": part, "m": {"type": "object"}}}, param=ROOT).rule
    assert matches(rule, '{"o":{"a":1},"m":{"x":1}}')
    assert not matches(rule, '{"o":{"b":1}}') and not matches(rule, '{"b":1}')


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {}}, "additionalProperties": True},
        {"type": "object", "allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]},
        {"type": "object", "properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}]},
        {"allOf": [{"$ref": "#/$defs/a"}, {"properties": {"b": {}}}], "$defs": {"a": {"properties": {"a": {}}}}},
    ],
)
def test_an_object_whose_properties_may_stand_elsewhere_stays_open(schema: Any) -> None:
    assert matches(free_schema_rule(schema, param=ROOT).rule, '{"a":1,"b":1}')
