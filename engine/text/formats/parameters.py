"""Parameters that a model writes as bare text: which JSON a schema makes of them."""

import json
from collections.abc import Mapping
from typing import NoReturn

from engine.text.formats.calls import escaped

ALL_TYPES = frozenset(("string", "integer", "number", "boolean", "object", "array", "null"))
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_DEEPEST = 16  # references and alternatives inside each other


def parameter_schema(schema: Mapping[str, object], key: str) -> object:
    """The schema of one parameter."""
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and key in properties:
        return properties[key]
    return schema.get("additionalProperties", {})


def json_types(schema: object, root: Mapping[str, object], depth: int = 0) -> frozenset[str]:
    """The types that a schema names, none where it allows all."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return frozenset()
    if "type" in schema:
        types = schema["type"]
        return frozenset(types if isinstance(types, list) else [types]) & ALL_TYPES
    if "const" in schema:
        return frozenset([type_of(schema["const"])])
    if isinstance(schema.get("enum"), list):
        return frozenset(map(type_of, schema["enum"]))
    if isinstance(reference := schema.get("$ref"), str):
        return json_types(resolved(reference, root), root, depth + 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(alternatives := schema.get(key), list):
            types_of = [json_types(each, root, depth + 1) for each in alternatives]
            return frozenset().union(*types_of) if all(types_of) else frozenset()
    if isinstance(every := schema.get("allOf"), list):
        named = [types for each in every if (types := json_types(each, root, depth + 1))]
        return frozenset.intersection(*named) if named else frozenset()
    return frozenset(["object"] if "properties" in schema else ["array"] if "items" in schema else [])


def as_json(text: str, types: frozenset[str]) -> str:
    """The text itself where it is JSON of one of these types, else the text as a JSON string."""
    stripped = text.strip()
    for candidate in (stripped, _PYTHON.get(stripped)):
        if candidate is not None and _json_type(candidate) & types:
            return candidate
    return f'"{escaped(text)}"'


def _json_type(text: str) -> frozenset[str]:
    """The types of a JSON text; none where it is not JSON."""
    try:
        value = json.loads(text, parse_int=lambda digits: 0, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return frozenset()
    kind = type_of(value)
    return frozenset((kind, "number")) if kind == "integer" else frozenset((kind,))


def type_of(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) or value.is_integer() else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def resolved(reference: str, root: Mapping[str, object]) -> object:
    """What a pointer into the same schema points to; nothing where it points elsewhere."""
    if not reference.startswith("#"):
        return None
    value: object = root
    for step in reference[1:].split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(value, Mapping) or step not in value:
            return None
        value = value[step]
    return value
