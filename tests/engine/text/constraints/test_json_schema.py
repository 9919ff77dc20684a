"""BB-043, BB-046: every keyword of a schema is enforced, is an annotation, or is refused with its path."""

import json
from typing import Any

import pytest

from engine.errors import RequestError
from engine.text.constraints.json_schema import checked_schema
from engine.text.constraints.rules import free_schema_rule, json_schema_rule
from tests.engine.text.constraints.tokenizers import constraint, matches

ROOT = "response_format.json_schema.schema"


def is_valid(schema: Any, text: str, *, strict: bool = True) -> bool:
    rule = json_schema_rule(schema, param=ROOT) if strict else free_schema_rule(schema, param=ROOT).rule
    return matches(rule, text)


def refusal(schema: Any) -> tuple[str, str]:
    """The path below the root and the code of what is refused before anything is compiled."""
    with pytest.raises(RequestError) as error:
        json_schema_rule(schema, param=ROOT)
    assert error.value.param is not None and error.value.param.startswith(ROOT)
    assert str(error.value).startswith(error.value.param)
    return error.value.param.removeprefix(ROOT).removeprefix("."), error.value.code


UNSUPPORTED: list[tuple[Any, str]] = [
    ({"type": "string", "pattern": "^(?=look)ahead$"}, "pattern"),
    ({"properties": {"a": {"pattern": r"(a)\1"}}}, "properties.a.pattern"),
    ({"properties": {"a": {"not": {"type": "null"}}}}, "properties.a.not"),
    ({"unevaluatedProperties": False}, "unevaluatedProperties"),
    ({"type": "array", "items": {"unevaluatedItems": False}}, "items.unevaluatedItems"),
    ({"$dynamicRef": "#x"}, "$dynamicRef"),
    ({"anyOf": [{}, {"if": {}}]}, "anyOf[1].if"),
    ({"allOf": [{"then": {}}]}, "allOf[0].then"),
    ({"else": {}}, "else"),
    ({"$ref": "https://example.com/schema.json"}, "$ref"),
    ({"$ref": "other.json#/a"}, "$ref"),
    ({"$ref": "#anchor"}, "$ref"),
    ({"properties": {"a": {"$id": "urn:x"}}}, "properties.a.$id"),
    ({"$anchor": "a"}, "$anchor"),
    ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    ({"type": "array", "contains": {}}, "contains"),
    ({"type": "array", "prefixItems": [{"minContains": 1}]}, "prefixItems[0].minContains"),
    ({"additionalItems": False}, "additionalItems"),
    ({"propertyNames": {}}, "propertyNames"),
    ({"dependentRequired": {}}, "dependentRequired"),
    ({"dependentSchemas": {}}, "dependentSchemas"),
    ({"dependencies": {}}, "dependencies"),
    ({"type": "string", "format": "uri-reference"}, "format"),
    ({"patternProperties": {"(?!x)": {}}}, "patternProperties.(?!x)"),
    ({"type": "object", "minProperties": 2}, "minProperties"),
    ({"multipleOf": 123456789}, "multipleOf"),
    ({"multipleOf": 1e-12}, "multipleOf"),
    ({"const": "\x01"}, "const"),
    ({"enum": ["a", {"b": ["\x7f"]}]}, "enum"),
    ({"properties": {"\ud800": {}}}, "properties.\ud800"),
    ({"unheard_of": 1}, "unheard_of"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"b": {"not": {}}}}}}, "$defs.a.properties.b.not"),
]
WRONG: list[tuple[Any, str]] = [
    (5, ""),
    ({"type": "something"}, "type"),
    ({"type": ["string", 5]}, "type"),
    ({"pattern": 5}, "pattern"),
    ({"format": {}}, "format"),
    ({"items": {"format": ["date"]}}, "items.format"),
    ({"anyOf": [{"$ref": f"#/anyOf/{'9' * 5000}"}]}, "anyOf[0].$ref"),
    ({"enum": []}, "enum"),
    ({"enum": "abc"}, "enum"),
    ({"required": [1]}, "required"),
    ({"properties": {"a": 1}}, "properties.a"),
    ({"additionalProperties": "no"}, "additionalProperties"),
    ({"anyOf": []}, "anyOf"),
    ({"oneOf": {}}, "oneOf"),
    ({"allOf": [1]}, "allOf[0]"),
    ({"items": 1}, "items"),
    ({"minLength": -1}, "minLength"),
    ({"maxItems": 1.5}, "maxItems"),
    ({"maxProperties": True}, "maxProperties"),
    ({"minProperties": "1"}, "minProperties"),
    ({"minimum": "1"}, "minimum"),
    ({"maximum": 10**18}, "maximum"),
    ({"const": 9007199254740993}, "const"),
    ({"multipleOf": 0}, "multipleOf"),
    ({"multipleOf": -1}, "multipleOf"),
    ({"$ref": 5}, "$ref"),
    ({"$ref": "#/$defs/nowhere"}, "$ref"),
    ({"$ref": "#/anyOf/2", "anyOf": [{}, {}]}, "$ref"),
]


@pytest.mark.parametrize(("schema", "path"), UNSUPPORTED)
def test_a_keyword_that_cannot_be_enforced_is_refused_with_its_path(schema: Any, path: str) -> None:
    assert refusal(schema) == (path, "unsupported_value")


@pytest.mark.parametrize(("schema", "path"), WRONG)
def test_a_keyword_with_a_wrong_value_is_refused_with_its_path(schema: Any, path: str) -> None:
    assert refusal(schema) == (path, "invalid_value")


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (False, "unsatisfiable"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, "unsatisfiable"),
        ({"oneOf": [{"type": "string"}, {"minLength": 2, "type": "string"}]}, "oneOf must exclude each other"),
        ({"type": "object", "properties": {"a": {}, "b": {}}, "maxProperties": 1, "minProperties": 1}, "Properties"),
        ({"type": "string", "pattern": "^a$", "minLength": 2}, "empty"),
        ({"$ref": "#"}, "no text matches"),
    ],
)
def test_a_schema_that_no_answer_can_obey_is_refused(schema: Any, reason: str) -> None:
    rule = json_schema_rule(schema, param=ROOT)
    with pytest.raises(RequestError, match=f"(?i){reason}"):
        constraint(rule)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, '{"a":1,"b":[]}', '{"a":"x"}'),
        ({"properties": {"a": False}, "type": "object"}, '{"b":1}', '{"a":1}'),
        ({"patternProperties": {"^i_": {"type": "integer"}}, "type": "object"}, '{"i_x":1}', '{"i_x":"1"}'),
        ({"type": "object", "minProperties": 1}, '{"a":1}', "{}"),
        ({"type": "object", "maxProperties": 1}, '{"a":1}', '{"a":1,"b":2}'),
        ({"type": "object", "required": ["a", "b"], "minProperties": 2}, '{"a":1,"b":2}', '{"a":1}'),
        ({"type": "array", "prefixItems": [{"const": 1}], "items": False}, "[1]", "[2]"),
        ({"type": "integer", "multipleOf": 5}, "25", "26"),
        ({"type": "number", "multipleOf": 0.01}, "0.07", "0.075"),
        ({"type": ["integer", "null"]}, "null", "true"),
        ({"type": "string", "maxLength": 2}, '"日本"', '"日本語"'),
        ({"type": "string", "pattern": "^a|b$"}, '"xxb"', '"xbx"'),
        ({"type": "string", "format": "ipv4"}, '"10.0.0.1"', '"10.0.0.256"'),
        ({"enum": [1, "a", None]}, '"a"', '"b"'),
        ({"const": {"a": [1, 2]}}, '{"a":[1,2]}', '{"a":[1]}'),
        ({"anyOf": [{"type": "null"}, {"const": 2}]}, "2", "3"),
        ({"oneOf": [{"type": "null"}, {"type": "boolean"}]}, "true", "1"),
        ({"allOf": [{"minimum": 2, "type": "integer"}, {"maximum": 4}]}, "3", "5"),
        ({"$ref": "#/definitions/x", "definitions": {"x": {"type": "null"}}}, "null", "1"),
        (True, '[{"a":null}]', "x"),
        ({}, "-1.5e3", "+1"),
    ],
)
def test_a_keyword_is_enforced(schema: Any, good: str, bad: str) -> None:
    assert is_valid(schema, good) and not is_valid(schema, bad)


TREE = {
    "type": "object",
    "properties": {
        "tree": {
            "anyOf": [
                {"type": "null"},
                {
                    "type": "array",
                    "prefixItems": [{"$ref": "#/properties/tree/anyOf/1"}, {"$ref": "#/$defs/a~1b/%25"}],
                    "items": False,
                },
            ]
        }
    },
    "required": ["tree"],
    "$defs": {"a/b": {"%": {"const": "%"}}},
}


def test_a_reference_may_point_anywhere_in_the_schema_and_recur() -> None:
    assert is_valid(TREE, '{"tree":[[[],"%"],"%"]}')
    assert not is_valid(TREE, '{"tree":[[null],"%"]}') and not is_valid(TREE, '{"tree":[[],"x"]}')
    itself = {"type": "object", "additionalProperties": {"$ref": "#"}}
    assert is_valid(itself, '{"a":{"b":{}}}') and not is_valid(itself, '{"a":1}')


def test_a_long_chain_of_references_is_followed() -> None:
    definitions: dict[str, Any] = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(2000)}
    checked = checked_schema({"$ref": "#/$defs/d0", "$defs": definitions | {"d2000": {}}}, "s", strict=True).schema
    assert isinstance(checked, dict) and isinstance(checked["$defs"], dict) and len(checked["$defs"]) == 2001


def test_definitions_that_nothing_points_to_are_left_alone() -> None:
    assert is_valid({"type": "null", "$defs": {"unused": {"not": {}}}}, "null")


def test_annotations_change_nothing() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://example.com/x",
        "title": "T",
        "description": "D",
        "default": {"not": 1},
        "examples": [1],
        "deprecated": True,
        "x-order": 1,
        "x-guidance": {"lenient": True},
        "$comment": "C",
        "type": "object",
        "properties": {"title": {"type": "integer", "format": "int64", "readOnly": True}},
        "required": ["title"],
        "additionalProperties": False,
    }
    assert is_valid(schema, '{"title":1}') and not is_valid(schema, '{"title":"x"}')
    tags = {"type": "array", "uniqueItems": False}
    assert is_valid(tags, "[1,1]") and not is_valid(tags, "{}")


def test_properties_come_in_the_order_of_the_schema() -> None:
    schema = {"type": "object", "properties": {"z": {}, "a": {}}, "required": ["a", "z"]}
    assert is_valid(schema, '{"z":1,"a":2}') and not is_valid(schema, '{"a":2,"z":1}')


@pytest.mark.parametrize("name", [r"\u0061", r"\u0061b", r"a\/b"])
def test_a_name_cannot_be_disguised_by_escapes(name: str) -> None:
    """It would bring a second value of a declared property, of any type."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "ab": {"type": "integer"}, "a/b": {"type": "integer"}},
        "additionalProperties": {"type": "string"},
    }
    assert is_valid(schema, '{"a":1,"other":"x"}')
    assert not is_valid(schema, f'{{"a":1,"{name}":"x"}}')


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer", "not": {"const": 1}}, "1", '"a"'),
        ({"type": "array", "uniqueItems": True, "items": {"type": "null"}}, "[null,null]", "[1]"),
        ({"type": "string", "pattern": "(?=a)", "maxLength": 1}, '"b"', '"bb"'),
        ({"type": "string", "format": "color"}, '"x"', "1"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "1", "null"),
        ({"type": "object", "properties": {"a": {"type": "null", "if": {}}}}, '{"a":null}', '{"a":1}'),
    ],
)
def test_where_it_need_not_be_strict_what_cannot_be_enforced_is_dropped(schema: Any, good: str, bad: str) -> None:
    assert is_valid(schema, good, strict=False) and not is_valid(schema, bad, strict=False)


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"type": "colour"}, ".type"),
        ({"required": 5}, ".required"),
        ({"properties": "a"}, ".properties"),
        ({"properties": {"a": {"enum": []}}}, ".properties.a.enum"),
        ({"$ref": "#/nowhere"}, ".$ref"),
        ({"minimum": 2**60}, ".minimum"),
        ({"minLength": "1"}, ".minLength"),
        (5, ""),
    ],
)
def test_what_is_plainly_wrong_is_refused_or_free_and_named(schema: Any, path: str) -> None:
    with pytest.raises(RequestError) as refusal:
        json_schema_rule(schema, param=ROOT)
    assert refusal.value.param == ROOT + path
    freed = free_schema_rule(schema, param=ROOT)
    assert freed.freed == (ROOT + path,) and matches(freed.rule, '{"a":1}')


def test_no_reference_ever_leaves_the_schema() -> None:
    schema = {"anyOf": [{"$ref": "https://example.com/x"}, {"const": 1}]}
    assert "example.com" not in free_schema_rule(schema, param=ROOT).rule


def test_the_schema_that_was_given_is_not_changed() -> None:
    schema = {"title": "T", "properties": {"a": {"description": "d", "$ref": "#/$defs/x"}}, "$defs": {"x": {}}}
    before = json.dumps(schema)
    json_schema_rule(schema, param=ROOT)
    assert json.dumps(schema) == before
