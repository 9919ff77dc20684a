"""Schemas as their writers meant them: the forms of other drafts and generators, read as JSON Schema 2020-12.

PHP writes an empty map as [], OpenAPI 3.0 and draft 4 write `exclusiveMinimum: true` beside `minimum`, draft 3 puts
`required: true` on a property, and providers have names of their own for types. Each of these has one plain meaning.
What has none is taken out, so that a template can walk over the rest, and told as a fault.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.text.constraints.json_schema import DEEPEST, TYPES

_TYPE_NAMES = {
    **{name: name for name in TYPES},
    **dict.fromkeys(("int", "int32", "int64", "long", "short"), "integer"),
    **dict.fromkeys(("float", "double", "decimal"), "number"),
    **dict.fromkeys(("bool",), "boolean"),
    **dict.fromkeys(("str", "text"), "string"),
    **dict.fromkeys(("dict", "map", "struct"), "object"),
    **dict.fromkeys(("list", "tuple"), "array"),
    **dict.fromkeys(("none", "nil"), "null"),
}
_ANY_TYPE = frozenset(("any", "mixed", "unknown"))
_EXCLUSIVE = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_MAPS = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_LISTS = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
_SCHEMAS = frozenset(("items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else"))
_NULL_SAYS_SOMETHING = frozenset(("const", "default", "example"))


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and value == int(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_list(value: object) -> bool:
    return isinstance(value, list) and bool(value)


_FORMS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        (_is_count, "must be an integer of at least 0"),
    ),
    **dict.fromkeys(("minimum", "maximum", *_EXCLUSIVE, "multipleOf"), (_is_number, "must be a number")),
    **dict.fromkeys(("pattern", "format", "$ref", "title", "description"), (_is_text, "must be a string")),
    "enum": (_is_list, "must be a list that is not empty"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """What could not be read, and why."""

    path: str
    what: str


@dataclass(frozen=True, slots=True)
class Read:
    """A schema as it was meant, without its faults. None for what is no schema at all."""

    schema: dict[str, object] | bool | None
    faults: tuple[Fault, ...]


def read_as_meant(schema: object, path: str) -> Read:
    """`path` is the schema's place in the request. What was not said is the empty schema."""
    reader = _Reader()
    return Read(reader.schema(schema, path, 0), tuple(reader.faults))


class _Reader:
    """One walk over one schema."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def schema(self, value: object, path: str, depth: int) -> dict[str, object] | bool | None:
        """None where it is none."""
        if isinstance(value, bool):
            return value
        if value is None or value == []:
            return {}
        if isinstance(value, str) and depth and value.lower() in _TYPE_NAMES:
            return {"type": _TYPE_NAMES[value.lower()]}
        if not isinstance(value, Mapping):
            self._fault(path, "must be an object or a boolean")
            return None
        return dict(value) if depth > DEEPEST else self._keywords(value, path, depth)

    def _keywords(self, schema: Mapping[str, object], path: str, depth: int) -> dict[str, object]:
        read: dict[str, object] = {}
        for keyword, value in schema.items():
            if value is None and keyword not in _NULL_SAYS_SOMETHING:
                continue
            read |= self._keyword(keyword, value, schema, f"{path}.{keyword}", depth)
        if schema.get("properties") is not None and "properties" not in read:
            read.setdefault("additionalProperties", True)  # whatever the properties were to be
        _read_exclusive(read)
        _read_required(read, schema)
        if schema.get("nullable") is True:
            _allow_null(read)
        return read

    def _keyword(
        self, keyword: str, value: object, schema: Mapping[str, object], path: str, depth: int
    ) -> dict[str, object]:
        """What the keyword says; nothing where it says nothing or cannot be read."""
        if keyword in _MAPS:
            return self._map(keyword, value, path, depth)
        if keyword in _LISTS or (keyword == "items" and isinstance(value, list)):
            return self._list("prefixItems" if keyword == "items" else keyword, value, path, depth)
        if keyword in _SCHEMAS:
            read = self.schema(value, path, depth + 1)
            return {} if read is None else {keyword: read}
        if keyword == "additionalItems" and isinstance(schema.get("items"), list):  # the rest of a draft-4 tuple
            read = self.schema(value, path, depth + 1)
            return {} if read is None else {"items": read}
        if keyword == "type":
            return self._type(value, path)
        if keyword == "required":
            return self._required(value, path, depth)
        if keyword == "nullable" or (keyword in _EXCLUSIVE and isinstance(value, bool)):
            return {keyword: value} if value and keyword in _EXCLUSIVE else {}
        return self._plain(keyword, value, path)

    def _plain(self, keyword: str, value: object, path: str) -> dict[str, object]:
        fits, what = _FORMS.get(keyword, (None, ""))
        if fits is not None and not fits(value):
            self._fault(path, what)
            return {}
        return {keyword: int(value) if fits is _is_count and isinstance(value, float) else value}

    def _map(self, keyword: str, value: object, path: str, depth: int) -> dict[str, object]:
        if value == []:
            value = {}
        if not isinstance(value, Mapping):
            self._fault(path, "must be an object")
            return {}
        read = {name: self.schema(part, f"{path}.{name}", depth + 1) for name, part in value.items()}
        # A property that cannot be read may still be given: as anything.
        return {keyword: {name: {} if part is None else part for name, part in read.items()}}

    def _list(self, keyword: str, value: object, path: str, depth: int) -> dict[str, object]:
        if value == [] and keyword == "prefixItems":
            return {}
        if not isinstance(value, list) or not value:
            self._fault(path, "must be a list that is not empty")
            return {}
        read = [self.schema(part, f"{path}[{place}]", depth + 1) for place, part in enumerate(value)]
        return {keyword: [{} if part is None else part for part in read]}

    def _type(self, value: object, path: str) -> dict[str, object]:
        names = value if isinstance(value, list) else [value]
        words = [name.lower() if isinstance(name, str) else "" for name in names]
        if any(word in _ANY_TYPE for word in words) or value == []:
            return {}
        if not all(word in _TYPE_NAMES for word in words):
            wrong = next(name for name, word in zip(names, words, strict=True) if word not in _TYPE_NAMES)
            self._fault(path, f"is {wrong!r:.100}, which is no type: use {', '.join(sorted(TYPES))}")
            return {}
        types = list(dict.fromkeys(_TYPE_NAMES[word] for word in words))
        return {"type": types if isinstance(value, list) else types[0]}

    def _required(self, value: object, path: str, depth: int) -> dict[str, object]:
        """A boolean is draft 3's, and is read with the object that has the property."""
        if isinstance(value, bool):
            if not depth and value:
                self._fault(path, "must be a list of strings")
            return {}
        if isinstance(value, Mapping) and not value:
            return {}
        if isinstance(value, str):
            return {"required": [value]}
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            self._fault(path, "must be a list of strings")
            return {}
        return {"required": list(dict.fromkeys(value))}

    def _fault(self, path: str, what: str) -> None:
        self.faults.append(Fault(path, what))


def _read_exclusive(read: dict[str, object]) -> None:
    """Draft 4: the flag says that the bound beside it is itself excluded."""
    for flag, bound in _EXCLUSIVE.items():
        if read.get(flag) is True:
            del read[flag]
            if bound in read:
                read[flag] = read.pop(bound)


def _read_required(read: dict[str, object], schema: Mapping[str, object]) -> None:
    """Draft 3: the property itself says that it has to be there."""
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        names = [
            name for name, part in properties.items() if isinstance(part, Mapping) and part.get("required") is True
        ]
        listed = read.get("required")
        if names:
            read["required"] = list(dict.fromkeys([*(listed if isinstance(listed, list) else []), *names]))


def _allow_null(read: dict[str, object]) -> None:
    """OpenAPI 3.0's nullable."""
    kind = read.get("type")
    if kind is not None:
        read["type"] = [*(kind if isinstance(kind, list) else [kind]), "null"]
    values = read.get("enum")
    if isinstance(values, list) and None not in values:
        read["enum"] = [*values, None]
