"""Mutated JSON schemas, regexes and grammars: each compiles and leads somewhere, or is refused with its path."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import RequestError
from engine.text.constraints.rules import json_schema_rule, lark_grammar, regex_rule
from tests.engine.text.constraints.random_answers import allowed
from tests.engine.text.constraints.tokenizers import constraint
from tests.fuzz.mutation import Literal, Members, mutable, places, written

SCHEMAS = json.loads((Path(__file__).parents[1] / "engine/text/constraints/data/schemas.json").read_text())
KEYWORDS = [
    *("type", "properties", "$ref", "items", "enum", "const", "anyOf", "oneOf", "allOf", "not", "if", "default"),
    *("pattern", "format", "required", "additionalProperties", "patternProperties", "$defs", "prefixItems", "$id"),
    *("minItems", "maxItems", "minLength", "maxLength", "minimum", "exclusiveMaximum", "multipleOf", "minProperties"),
    *("uniqueItems", "x-guidance", "title"),
]
VALUES = [
    *("null", "true", "{}", "[]", "0", "-1", "1.5", "1e308", "9223372036854775808", "1000000000", "0.0001", '"a"'),
    *('"string"', '"date"', '"#"', '"#/$defs/t"', '"#/nope/0"', '"http://a/b"', '"(a"', '"(a|b)+$"', '"[0-9]{1,5000}"'),
    *('["string", "null"]', '["a", "a"]', "[{}]", "[false, 1]", '{"type": "string"}', '{"$ref": "#"}', '{"a": {}}'),
]
PATTERNS = [r"(foo|ba[rz])+\d{2,4}[^a-c]*(?i:x)\p{L}$", "[ab]{2,5}", r"^\w+@\w+\.com$"]
GRAMMARS = [
    'start: a | b\na: "x"+ B?\nb: /[0-9]{2,5}/ %json {"type": "object"}\nB: /y+/\n%ignore / +/',
    'start: item ("," item)*\nitem: /[a-z]{1,9}/ | "(" start ")"',
]
PIECES = [
    *("(", ")", "[", "]", "{9999}", "{1,100000}", "{,}", "*", "+", "|", "?", "\\p", "\\1", "(?=a)", "^", "$", "&", "~"),
    *("(a+)+", "((a*)*)*", "(.{0,500}){500}", "(?i)", "\\b", "é", "\x00", "\n", "/", '"', "start", "b", "B", "-1"),
    *("<[3]>", "<[0-99999]>", "<|im_end|>", "%json {}", "%regex {", "%lark {\n}", "%import a", "%ignore a"),
    *("[lazy]:", "[max_tokens=3]:", '[suffix="a"]:'),
]
QUIET = settings(
    max_examples=200, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


@st.composite
def mutated_schemas(draw: st.DrawFn) -> Any:
    schema = mutable(draw(st.sampled_from(SCHEMAS))["schema"])
    for _ in range(draw(st.integers(1, 3))):
        items, index = draw(st.sampled_from([*places(Members([("", schema)]))][1:] or [([schema], 0)]))
        value = Literal(draw(st.sampled_from(VALUES)))
        match items[index]:
            case tuple((name, old)):
                keyword = draw(st.sampled_from(KEYWORDS))
                inside = Members([(draw(st.sampled_from(KEYWORDS)), value), (keyword, old)])
                items[index] = draw(st.sampled_from([(name, value), (keyword, old), (keyword, value), (name, inside)]))
            case _:
                items[index] = value
    return json.loads(written(schema))


@st.composite
def mutated_texts(draw: st.DrawFn, texts: list[str]) -> str:
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        text = text[:start] + draw(st.sampled_from(PIECES)) + text[start + draw(st.integers(0, 3)) :]
    return text


def outcome(rule: Any, source: Any) -> str:
    """Whether it was refused, or an answer was begun under it."""
    try:
        matcher = constraint(rule(source, param="rule")).start()
    except RequestError as error:
        assert error.param is not None and error.param.startswith("rule")
        return "refused"
    for _ in range(5):
        following = np.flatnonzero(allowed(matcher))
        assert len(following)
        matcher.accept(int(following[len(following) // 2]))
    return "begun"


def test_mutated_schemas() -> None:
    outcomes: Counter[str] = Counter()

    @QUIET
    @given(mutated_schemas())
    def check(schema: Any) -> None:
        outcomes[outcome(json_schema_rule, schema)] += 1

    check()
    assert outcomes["refused"] and outcomes["begun"]


def test_mutated_regexes() -> None:
    outcomes: Counter[str] = Counter()

    @QUIET
    @given(mutated_texts(PATTERNS))
    def check(pattern: str) -> None:
        outcomes[outcome(regex_rule, pattern)] += 1

    check()
    assert outcomes["refused"] and outcomes["begun"]


def test_mutated_grammars() -> None:
    outcomes: Counter[str] = Counter()

    @QUIET
    @given(mutated_texts(GRAMMARS))
    def check(grammar: str) -> None:
        outcomes[outcome(lark_grammar, grammar)] += 1

    check()
    assert outcomes["refused"] and outcomes["begun"]
