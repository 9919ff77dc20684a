"""What a request may ask of an answer's form, checked and put as the right-hand side of a grammar's rule."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llguidance import LLMatcher, regex_to_lark

from engine.errors import RequestError
from engine.text.constraints.json_schema import LONGEST, Schema, checked_schema
from engine.text.constraints.readings import read_as_meant

MOST_CHOICES = 10_000
LONGEST_REGEX = 10_000  # characters; of all choices together ten times as much
LONGEST_LARK = 100_000
# White space is optional between the parts of a JSON text, and bounded: one blank, or a line break with its indent.
# Without \u every text can be written in one way only: a name written otherwise would escape the check of its value.
_JSON_OPTIONS = {"whitespace_pattern": " |\n {0,32}", "json_allowed_escapes": 'nrbtf\\"'}
_GBNF = re.compile(r"^\s*[\w-]+\s*::=", re.MULTILINE)
_QUOTED_REASON = re.compile(r"\s+\d+ \| .*", re.DOTALL)


def json_object_rule() -> str:
    """Any JSON object."""
    return _json_rule({"type": "object"})


@dataclass(frozen=True, slots=True)
class SchemaRule:
    """A rule, and the paths of what the schema asks for and the rule does not hold."""

    rule: str
    freed: tuple[str, ...] = ()


def json_schema_rule(schema: object, *, param: str, closed: bool = False) -> str:
    """A value of this JSON schema. Raises RequestError for what cannot be read or enforced.

    Where closed, an object that names properties and does not say `additionalProperties` has no others.
    """
    read = read_as_meant(_bounded(schema, param), param)
    for fault in read.faults:
        raise RequestError(f"{fault.path} {fault.what}.", param=fault.path)
    return _checked_rule(checked_schema(read.schema, param, strict=True, closed=closed).schema)


def free_schema_rule(schema: object, *, param: str) -> SchemaRule:
    """A value of a tool's schema: whatever of the schema cannot be enforced is free, and told. Raises nothing.

    Objects are closed as above, and oneOf is read as anyOf.
    """
    try:
        read = read_as_meant(_bounded(schema, param), param)
        checked = checked_schema(read.schema, param, strict=False, closed=True)
    except RequestError:
        is_object = isinstance(schema, Mapping) and schema.get("type") == "object"
        return SchemaRule(_json_rule({"type": "object"} if is_object else {}), (param,))
    paths = dict.fromkeys((*(fault.path for fault in read.faults), *checked.freed))
    return SchemaRule(_checked_rule(checked.schema, coerce_one_of=True), tuple(paths))


def _bounded(schema: object, param: str) -> object:
    try:
        length = len(json.dumps(schema))
    except (RecursionError, ValueError, TypeError):
        raise RequestError(f"{param} is nested too deeply or is not JSON; make it simpler.", param=param) from None
    if length > LONGEST:
        raise RequestError(f"{param} is longer than {LONGEST} characters; make it smaller.", param=param)
    return schema


def _checked_rule(schema: Schema, **options: bool) -> str:
    if isinstance(schema, bool):
        schema = {} if schema else {"enum": []}
    return _json_rule(schema, **options)


def regex_rule(pattern: str, *, param: str) -> str:
    """A text that the whole regular expression matches."""
    if len(pattern) > LONGEST_REGEX:
        raise RequestError(f"{param} is longer than {LONGEST_REGEX} characters; make it smaller.", param=param)
    if not pattern:
        return '""'
    rule = f"/{regex_to_lark(pattern, '')}/"
    error = LLMatcher.validate_grammar(f"start: {rule}")
    if error:
        reason = " ".join(_QUOTED_REASON.sub("", error.rpartition("error: ")[2]).split()).rstrip(".")
        raise RequestError(f"{param} cannot be used as a regular expression: {reason}.", param=param)
    return rule


def choice_rule(choices: Sequence[str], *, param: str) -> str:
    """One of these texts."""
    if not 0 < len(choices) <= MOST_CHOICES:
        raise RequestError(f"{param} must hold between 1 and {MOST_CHOICES} choices.", param=param)
    if sum(map(len, choices)) > 10 * LONGEST_REGEX:
        raise RequestError(f"{param} is longer than {10 * LONGEST_REGEX} characters; make it smaller.", param=param)
    for place, choice in enumerate(choices):
        if any("\ud800" <= character <= "\udfff" for character in choice):
            raise RequestError(f"{param}[{place}] holds half a character.", param=f"{param}[{place}]")
    return f"/({'|'.join(map(_literal, choices))})/"


def lark_grammar(source: str, *, param: str) -> str:
    """A grammar of the user's own, nested: its names, its start and its %ignore stay inside."""
    if len(source) > LONGEST_LARK:
        raise RequestError(f"{param} is longer than {LONGEST_LARK} characters; make it smaller.", param=param)
    if _GBNF.search(source):
        raise RequestError(f"{param} is a GBNF grammar; write it in Lark, with a rule `start: ...`.", param=param)
    return f"%lark {{\n{source}\n}}"


def _json_rule(schema: object, **options: bool) -> str:
    assert isinstance(schema, dict)
    return f"%json {json.dumps(schema | {'x-guidance': _JSON_OPTIONS | options})}"


def _literal(text: str) -> str:
    """A regex that matches just this text."""
    return "".join(c if c.isalnum() else f"\\x{{{ord(c):x}}}" for c in text)
