"""Checks a JSON schema before llguidance sees it: every keyword is enforced, an annotation, or refused with its path.

What comes out says the same as what went in, without annotations. Some keywords are refused though llguidance takes
them, since it would let wrong values pass: see _WIDEST_NUMBER, _check_min_properties and _check_constant. A schema of
a tool that is not strict loses what would be refused, and the paths of what it lost are told.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import unquote

from llguidance import LLMatcher

from engine.errors import RequestError

Schema = dict[str, object] | bool
DEEPEST = 64
LONGEST = 1 << 20  # characters of JSON
MOST_PROPERTIES = 10_000
MOST_CONSTANTS = 20_000
LONGEST_PATTERN = 10_000
_WIDEST_NUMBER = 2**53  # beyond it llguidance's doubles are not exact
# Bounds of the types that generators know. No answer gets past these, so as bounds they say nothing.
_WIDEST_INTEGER = 2**63 - 1
_WIDEST_FLOAT = 3.4028234e38
_LONGEST_COUNT = 2**31 - 1  # of characters, items and properties
# What may name properties elsewhere, or says by itself what others there are.
_OPENING = ("$ref", "allOf", "anyOf", "oneOf", "patternProperties", "const", "enum", "additionalProperties")
_LARGEST_DIVISOR = 100_000  # in units of the last decimal place: the states of its automaton
TYPES = frozenset(("null", "boolean", "object", "array", "number", "string", "integer"))
FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
)  # fmt: skip
_ANNOTATIONS = frozenset(
    (
        "title",
        "description",
        "default",
        "examples",
        "example",
        "deprecated",
        "readOnly",
        "writeOnly",
        "discriminator",
        "contentMediaType",
        "contentEncoding",
        "$comment",
        "$schema",
    )
)
_NOT_IN_TEXT = re.compile("[\x00-\x07\x0b\x0e-\x1f\x7f\ud800-\udfff]")  # what strings of an answer never hold
_PATH_END = re.compile(r"\s+\d+ \| .*", re.DOTALL)


def may_be_closed(schema: Mapping[str, object]) -> bool:
    """Whether all properties of the object are named here, so that others can be ruled out."""
    properties = schema.get("properties", {})
    named = isinstance(properties, Mapping) and set(_names(schema)) <= properties.keys()
    return named and not any(keyword in schema for keyword in _OPENING)


@dataclass(frozen=True, slots=True)
class CheckedSchema:
    """What llguidance is to enforce, and the paths of what it cannot."""

    schema: Schema
    freed: tuple[str, ...] = ()


def checked_schema(root: object, path: str, *, strict: bool, closed: bool = False) -> CheckedSchema:
    """The schema without annotations, each $ref to a definition of its own. RequestError tells the path of a fault.

    Where not strict, keywords that cannot be enforced are dropped: values may be wider than asked for. Where closed,
    an object that names properties and does not say `additionalProperties` has no others.
    """
    walk = _SchemaWalk(root, path, strict=strict, closed=closed)
    return CheckedSchema(walk.whole(), tuple(walk.freed))


class _SchemaWalk:
    """One walk over one schema."""

    def __init__(self, root: object, path: str, *, strict: bool, closed: bool) -> None:
        self.freed: list[str] = []
        self._root = root
        self._path = path
        self._strict = strict
        self._closed = closed
        self._shared = 0  # how many schemas around this one name properties of the same object
        self._names: dict[tuple[str, bool], str] = {}  # pointer, and whether shared -> name of the definition
        # Name, place and path of those that were not walked yet, and whether they are shared.
        self._open: list[tuple[str, object, str, bool]] = []
        self._properties = MOST_PROPERTIES
        self._constants = MOST_CONSTANTS
        self._patterns: set[str] = set()

    def whole(self) -> Schema:
        """The root, and under $defs whatever a $ref points to: recursion is fine, and so is any place."""
        root = self._checked(self._root, self._path)
        definitions: dict[str, Schema] = {}
        while self._open:
            name, place, path, self._shared = self._open.pop()
            definitions[name] = self._checked(place, path)
        return root if isinstance(root, bool) or not definitions else root | {"$defs": definitions}

    def _checked(self, schema: object, path: str, depth: int = 0) -> Schema:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            _wrong(path, "must be an object or a boolean")
        if depth > DEEPEST:
            _wrong(path, f"is nested deeper than {DEEPEST} levels")
        kept: dict[str, object] = {}
        for keyword, value in schema.items():
            where = f"{path}.{keyword}"
            if self._is_silent(keyword, value, schema, depth):
                continue
            try:
                kept[keyword] = self._value(keyword, value, schema, where, depth)
            except RequestError:
                if self._strict:
                    raise
                self.freed.append(where)
        # An object that names no property is a map of anything.
        if self._closed and not self._shared and kept.get("properties") and may_be_closed(schema):
            kept["additionalProperties"] = False
        return kept

    def _is_silent(self, keyword: str, value: object, schema: Mapping[str, object], depth: int) -> bool:
        """Whether the keyword changes nothing of what is valid."""
        if keyword in _ANNOTATIONS or keyword.startswith("x-") or keyword in ("$defs", "definitions"):
            return True
        if keyword == "format":
            return not _may_be_string(schema)
        if keyword == "minProperties":
            return isinstance(value, int) and 0 <= value <= len(_names(schema))
        if _says_nothing(keyword, value):
            return True
        return (keyword == "$id" and not depth) or (keyword in ("uniqueItems", "nullable") and value is False)

    def _value(self, keyword: str, value: object, schema: Mapping[str, object], where: str, depth: int) -> object:
        check = _VALUE_CHECKS.get(keyword)
        if check is not None:
            check(value, where)
            return value
        match keyword:
            case "properties" | "patternProperties":
                return self._schemas_by_name(keyword, value, where, depth)
            case "items" | "additionalProperties":
                if isinstance(value, list):
                    raise _UnsupportedError(where, "as a list is not supported: use prefixItems")
                return self._checked(value, where, depth + 1)
            case "anyOf" | "oneOf" | "allOf" | "prefixItems":
                return self._parts(keyword, value, schema, where, depth)
            case "enum" | "const":
                return self._constant(keyword, value, where)
            case "pattern":
                self._check_pattern(value, where)
            case "format":
                if not isinstance(value, str):
                    _wrong(where, "must be a string")
                if value not in FORMATS:
                    raise _UnsupportedError(
                        where, f"{value!r:.100} is not supported: use one of {', '.join(sorted(FORMATS))}"
                    )
            case "$ref":
                return self._reference(value, where)
            case "minProperties":
                _check_min_properties(value, where)
            case _:
                raise _UnsupportedError(where, "is not supported: leave it out")
        return value

    def _schemas_by_name(self, keyword: str, value: object, where: str, depth: int) -> dict[str, Schema]:
        if not isinstance(value, Mapping):
            _wrong(where, "must be an object")
        self._properties -= len(value)
        if self._properties < 0:
            _wrong(where, f"is too much: a schema may name {MOST_PROPERTIES} properties")
        for name in value:
            if keyword == "patternProperties":
                self._check_pattern(name, f"{where}.{name}")
            _check_text(name, f"{where}.{name}")
        return {name: self._checked(part, f"{where}.{name}", depth + 1) for name, part in value.items()}

    def _parts(self, keyword: str, value: object, schema: Mapping[str, object], where: str, depth: int) -> list[Schema]:
        """The parts of one object name its properties together."""
        shared = keyword == "allOf" or "properties" in schema
        self._shared += shared
        try:
            return [self._checked(part, f"{where}[{i}]", depth + 1) for i, part in enumerate(_list(value, where))]
        finally:
            self._shared -= shared

    def _constant(self, keyword: str, value: object, where: str) -> object:
        values = _list(value, where) if keyword == "enum" else [value]
        self._constants -= len(values)
        if self._constants < 0:
            _wrong(where, f"is too long: a schema may hold {MOST_CONSTANTS} constants")
        for constant in values:
            _check_constant(constant, where)
        return value

    def _check_pattern(self, pattern: object, where: str) -> None:
        if not isinstance(pattern, str):
            _wrong(where, "must be a string")
        if pattern in self._patterns:
            return
        self._patterns.add(pattern)
        if sum(map(len, self._patterns)) > LONGEST_PATTERN:
            _wrong(where, f"is too long: the patterns of a schema may have {LONGEST_PATTERN} characters")
        error = LLMatcher.validate_grammar(f"start: %json {json.dumps({'type': 'string', 'pattern': pattern})}")
        if error:
            reason = " ".join(_PATH_END.sub("", error.rpartition("error: ")[2]).split())
            raise _UnsupportedError(where, f"cannot be used as a regular expression: {reason}")

    def _reference(self, pointer: object, where: str) -> str:
        if not isinstance(pointer, str):
            _wrong(where, "must be a string")
        if pointer != "#" and not pointer.startswith("#/"):
            raise _UnsupportedError(where, f"must begin with '#/': {pointer!r:.100} lies outside the schema")
        key = pointer, self._shared > 0
        if key not in self._names:
            found = self._find(pointer)
            if found is None:
                _wrong(where, f"points nowhere: the schema has no {pointer!r:.100}")
            self._names[key] = str(len(self._names))
            self._open.append((self._names[key], *found, key[1]))
        return f"#/$defs/{self._names[key]}"

    def _find(self, pointer: str) -> tuple[object, str] | None:
        """What a JSON pointer points to, and its path; None where there is nothing."""
        place, path = self._root, self._path
        for step in pointer.split("/")[1:]:
            step = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(place, Mapping) and step in place:
                place, path = place[step], f"{path}.{step}"
            elif isinstance(place, list) and step.isdecimal() and len(step) < 10 and int(step) < len(place):
                place, path = place[int(step)], f"{path}[{int(step)}]"
            else:
                return None
        return place, path


class _UnsupportedError(RequestError):
    """A keyword that is sound but cannot be enforced."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where} {what}.", param=where, code="unsupported_value")


def _wrong(path: str, what: str) -> NoReturn:
    raise RequestError(f"{path} {what}.", param=path)


def _list(value: object, where: str) -> Sequence[object]:
    if not isinstance(value, list) or not value:
        _wrong(where, "must be a list that is not empty")
    return value


def _names(schema: Mapping[str, object]) -> Sequence[object]:
    required = schema.get("required", ())
    return required if isinstance(required, list) else ()


def _may_be_string(schema: Mapping[str, object]) -> bool:
    kind = schema.get("type", "string")
    return kind == "string" or (isinstance(kind, list) and "string" in kind)


def _says_nothing(keyword: str, value: object) -> bool:
    """Whether it is a bound that every answer keeps: generators write those of 64-bit integers and of floats."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if keyword in ("maxLength", "maxItems", "maxProperties"):
        return value >= _LONGEST_COUNT
    if keyword in ("minimum", "exclusiveMinimum"):
        value = -value
    elif keyword not in ("maximum", "exclusiveMaximum"):
        return False
    return value >= (_WIDEST_INTEGER if isinstance(value, int) else _WIDEST_FLOAT)


def _check_type(value: object, where: str) -> None:
    for kind in _list(value, where) if isinstance(value, list) else [value]:
        if not isinstance(kind, str) or kind not in TYPES:
            _wrong(where, f"is {kind!r:.100}, which is no type: use {', '.join(sorted(TYPES))}")


def _check_count(value: object, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        _wrong(where, "must be an integer of at least 0")


def _check_number(value: object, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        _wrong(where, "must be a number")
    if abs(value) > _WIDEST_NUMBER:
        _wrong(where, f"is too large: numbers lie between -{_WIDEST_NUMBER} and {_WIDEST_NUMBER}")


def _check_divisor(value: object, where: str) -> None:
    _check_number(value, where)
    assert isinstance(value, int | float)
    if value <= 0:
        _wrong(where, "must be greater than 0")
    digits = f"{value:.10f}".rstrip("0").replace(".", "")
    if not float(f"{value:.10f}") == value or int(digits) > _LARGEST_DIVISOR:
        raise _UnsupportedError(where, f"is too fine or too large: its digits must be at most {_LARGEST_DIVISOR}")


def _check_names(value: object, where: str) -> None:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        _wrong(where, "must be a list of strings")
    for name in value:
        _check_text(name, where)


def _check_min_properties(value: object, where: str) -> None:
    """A name that is written twice counts once, but llguidance counts both."""
    _check_count(value, where)
    assert isinstance(value, int)
    if value > 1:
        raise _UnsupportedError(where, "above 1 is not supported: list the properties in required")


def _check_text(text: str, where: str) -> None:
    found = _NOT_IN_TEXT.search(text)
    if found:
        raise _UnsupportedError(where, f"holds the character U+{ord(found[0]):04X}, which no answer can hold")


def _check_constant(value: object, where: str) -> None:
    """Refuse what would not come out as it is written."""
    match value:
        case str():
            _check_text(value, where)
        case None | bool():
            return
        case int() | float():
            _check_number(value, where)
        case list():
            for item in value:
                _check_constant(item, where)
        case dict():
            for name, item in value.items():
                _check_text(name, where)
                _check_constant(item, where)


_VALUE_CHECKS: Mapping[str, Callable[[object, str], None]] = {
    "type": _check_type,
    "required": _check_names,
    "multipleOf": _check_divisor,
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "maxProperties"), _check_count),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _check_number),
}
