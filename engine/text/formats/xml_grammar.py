"""Grammars of parameters that stand between tags: a schema becomes what may stand there, as text or as JSON."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from engine.errors import RequestError
from engine.text.constraints.rules import regex_rule
from engine.text.formats.grammar import ANY_TEXT, Grammar, regex
from engine.text.formats.parameters import json_types, resolved, type_of
from engine.text.formats.parts import INPUT, Tool

Kind = Literal["text", "json", "schema"]

_OF_OBJECTS = ("minProperties", "maxProperties", "patternProperties", "propertyNames", "dependentRequired")
_OF_ALL = ("anyOf", "oneOf", "allOf", "not", "if", "dependentSchemas", "enum", "const")
_DEEPEST = 16
# Text that would be read as JSON of a type; where the type is allowed, it must be written by its own rule.
_LOOKS_LIKE = {
    "object": r"/\s*\{(?s:.*)/",
    "array": r"/\s*\[(?s:.*)/",
    "integer": r"/\s*-?[0-9][0-9.eE+-]*\s*/",
    "number": r"/\s*-?[0-9][0-9.eE+-]*\s*/",
    "boolean": r"/\s*([tT]rue|[fF]alse)\s*/",
    "null": r"/\s*(null|None)\s*/",
}


@dataclass(frozen=True, slots=True)
class ParameterTags:
    """The tags around the parameters of a call, in one format."""

    around: tuple[str, str]  # before the key, after the value
    key_ends: tuple[tuple[str, Kind], ...]  # after the key, and what this says of the value
    endings: tuple[str, ...]  # what ends a value, as text in it would
    padding: str  # one on each side of a value, no part of it


def parameters_rule(tags: ParameterTags, grammar: Grammar, tool: Tool) -> str:
    """All parameters of a call, in the schema's order."""
    schema = tool.parameters
    if tool.strict:
        _check_object(schema, tool.schema_path)
    properties = schema.get("properties")
    known = dict(properties) if isinstance(properties, Mapping) else {}
    listed = schema.get("required")
    required = listed if isinstance(listed, list) else []
    known |= {key: {} for key in required if key not in known}
    terms = [
        _Parameter(tags, grammar, tool, key, value).rule() + ("" if key in required else "?")
        for key, value in known.items()
    ]
    more = schema.get("additionalProperties", False)
    if more is not False and not known:
        terms.append(_Parameter(tags, grammar, tool, None, more).rule() + "*")
    return " ".join(terms)


def _check_object(schema: Mapping[str, object], param: str) -> None:
    for key in (*_OF_OBJECTS, *_OF_ALL):
        if key in schema:
            raise RequestError(
                f"This model writes arguments one by one, so {key!r} cannot be enforced for all of them; leave it out"
                " or set strict to false.",
                param=f"{param}.{key}",
                code="unsupported_value",
            )


@dataclass(frozen=True, slots=True)
class _Parameter:
    """One parameter of one tool."""

    tags: ParameterTags
    grammar: Grammar
    tool: Tool
    key: str | None  # None: any name
    schema: object

    def rule(self) -> str:
        """The parameter with its tags."""
        if self.key == INPUT and (text := self.grammar.text_rule(self.tool, in_json=False)) is not None:
            padding, close = self.tags.padding, self.tags.around[1]
            value = f"{self.grammar.text(padding)} {text} {self.grammar.text(padding + close)}"
            return self.grammar.rule("parameter", f"{self._open('text')} {value} {self._line()}")
        types = json_types(self.schema, self.tool.parameters)
        ways = list(self._ways(self.schema, types, 0))
        return self.grammar.rule("parameter", " | ".join(ways))

    def _ways(self, schema: object, types: frozenset[str], depth: int) -> Iterator[str]:
        """The ways to write a value; `types` are all that the parameter may have."""
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            schema = {}
        if isinstance(reference := schema.get("$ref"), str):
            yield from self._ways(resolved(reference, self.tool.parameters), types, depth + 1)
            return
        for key in ("anyOf", "oneOf"):
            if isinstance(alternatives := schema.get(key), list):
                rest = {name: value for name, value in schema.items() if name != key}
                for each in alternatives:
                    yield from self._ways({**rest, **each} if isinstance(each, Mapping) else each, types, depth + 1)
                return
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list):
            yield from self._of_values(values)
            return
        own = json_types(schema, self.tool.parameters)
        if not own or "string" in own:
            yield self._text(self._string_body(schema), types)
        if others := own - {"string"}:
            yield self._json({**schema, "type": sorted(others)})
        elif not own and self._key_end("json") is not None:
            yield self._json(schema)

    def _of_values(self, values: list[object]) -> Iterator[str]:
        texts = [regex(value) for value in values if isinstance(value, str)]
        if texts:
            yield self._text(f"/{'|'.join(texts)}/", frozenset())
        others = [value for value in values if type_of(value) != "string"]
        if others:
            yield self._json({"enum": others})

    def _text(self, body: str | None, types: frozenset[str]) -> str:
        """A string as it is. What could be taken for JSON of the other types is no string."""
        tags, grammar = self.tags, self.grammar
        padding = f'"{json.dumps(tags.padding)[1:-1]}"'
        inner = body or ANY_TEXT
        taken_for = types - {"string"} if self._key_end("text") is None else frozenset()
        for pattern in sorted({_LOOKS_LIKE[each] for each in taken_for}):
            inner = f"({inner}) & ~{pattern}"
        inner = grammar.terminal(inner)
        # Free text may do without the padding after it: models forget it, and the parser minds neither.
        whole = f"{padding} {inner}" if body is None else f"{padding} {inner} {padding}"
        endings = [tags.around[1], *tags.endings]
        without = endings if body is not None else [tag for tag in endings if tag != tags.around[1]]
        return f"{self._open('text')} {grammar.until(tags.around[1], body=whole, without=without)} {self._line()}"

    def _json(self, schema: Mapping[str, object]) -> str:
        root = self.tool.parameters
        shared = {key: root[key] for key in ("$defs", "definitions") if key in root}
        param = self.tool.schema_path
        where = param if self.key is None else f"{param}.properties.{self.key}"
        value = self.grammar.schema_rule(self.tool, {**shared, **schema}, where)
        padding, close = self.tags.padding, self.tags.around[1]
        value = f"{self.grammar.text(padding)} {self.grammar.rule('value', value)} {self.grammar.text(padding + close)}"
        return f"{self._open('json')} {value} {self._line()}"

    def _string_body(self, schema: Mapping[str, object]) -> str | None:
        """What a string has to look like; None for any."""
        bodies = []
        shortest, longest = schema.get("minLength", 0), schema.get("maxLength", "")
        if shortest or longest != "":
            bodies.append(f"/(?s:.{{{shortest},{longest}}})/")
        if isinstance(pattern := schema.get("pattern"), str):
            try:
                bodies.append(_searched(pattern, f"{self.tool.schema_path}.properties.{self.key}.pattern"))
            except RequestError:
                if self.tool.strict:
                    raise
                self.grammar.freed[f"{self.tool.schema_path}.properties.{self.key}.pattern"] = None
        return " & ".join(bodies) or None

    def _open(self, kind: Kind) -> str:
        end = self._key_end(kind) or self._key_end("schema") or ""
        before = self.tags.around[0]
        if self.key is None:
            return f"{self.grammar.text(before)} /[A-Za-z_][A-Za-z0-9_]*/ {self.grammar.text(end)}"
        return self.grammar.text(before + self.key + end)

    def _key_end(self, kind: Kind) -> str | None:
        return next((end for end, each in self.tags.key_ends if each == kind), None)

    def _line(self) -> str:
        return '"\\n"'


def _searched(pattern: str, param: str) -> str:
    """A schema's pattern may match anywhere; in a grammar it has to match all."""
    begins, ends = pattern.startswith("^"), pattern.endswith("$") and not pattern.endswith("\\$")
    inner = pattern[begins : len(pattern) - ends]
    if (begins or ends) and _has_open_alternatives(inner):
        raise RequestError(
            "Put the alternatives of this pattern in brackets: with ^ or $ outside it cannot be enforced.",
            param=param,
            code="unsupported_value",
        )
    before, after = "" if begins else ANY_TEXT, "" if ends else ANY_TEXT
    return f"({before} {regex_rule(inner, param=param)} {after})"


def _has_open_alternatives(pattern: str) -> bool:
    """Whether a | stands outside of all brackets."""
    depth = 0
    escaped = in_class = False
    for character in pattern:
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "|" and depth == 0:
            return True
    return False
