"""JSON bodies gone wrong: what a broken or hostile client sends in place of a valid body."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st


@dataclass(frozen=True)
class Literal:
    """Text that is written as it is, JSON or not."""

    text: str


@dataclass
class Members:
    """An object whose names need not be different."""

    pairs: list[tuple[Any, Any]]


LITERALS = [
    *("null", "true", "false", "0", "-1", "1.0", "-0.0", "1e5", "0.1e1", "3.5", "1e-320", "16", "1000000"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" * 400, "1e308", "1e400", "-1e999"),
    *("NaN", "Infinity", "-Infinity", "01", "+1", ".5", "0x10", "undefined", "'a'", "", ","),
    *('""', '"a"', '"\\u0000"', '"\\ud800"', '"\\udc00\\ud800"', '"\ud800"', '"\\u00e9"', '"é🙂"', '"\\x"', '"\n"'),
    *('"true"', '"16"', '"scripted"', '"user"', '"function"', '"text"', f'"{"a" * 5000}"', f'"{"🙂" * 500}"'),
    *('"%s{}{0}%(a)s"', '"{{ 7 * 7 }}{% if %}"', '"<think></think><tool_call>"', '"<|im_end|>"', '"(a+)+$"'),
    *("[]", "{}", "[null]", "[[]]", "[1]", '["a"]', '{"a": 1}', '{"": null}', '{"type": "object"}', '{"type": null}'),
    *("[" * depth + "]" * depth for depth in (50, 99, 101, 5000)),
    *('{"a":' * depth + "1" + "}" * depth for depth in (50, 101)),
    *("[" * 3000, f"[{','.join(['0'] * 3000)}]", f"[{','.join(['{}'] * 300)}]"),
]
NAMES = ["", "type", "role", "content", "messages", "n", "tools", "stream", "\x00", "🙂", "a" * 300, "__class__", "{0}"]

Place = tuple[list[Any], int]  # a list and an index into it: members of objects are lists of pairs


def mutable(value: Any) -> Any:
    """The same JSON, with its objects as lists of members."""
    match value:
        case dict():
            return Members([(name, mutable(member)) for name, member in value.items()])
        case list():
            return [mutable(item) for item in value]
        case _:
            return value


def written(value: Any) -> str:
    match value:
        case Literal(text):
            return text
        case Members(pairs):
            return "{" + ",".join(f"{written(name)}:{written(member)}" for name, member in pairs) + "}"
        case list():
            return "[" + ",".join(map(written, value)) + "]"
        case _:
            return json.dumps(value)


def places(value: Any) -> Iterator[Place]:
    """Every member and item within the value, at any depth."""
    items = value.pairs if isinstance(value, Members) else value if isinstance(value, list) else []
    for index, item in enumerate(items):
        yield items, index
        yield from places(item[1] if isinstance(value, Members) else item)


def changed(item: Any, change: Callable[[Any], Any]) -> Any:
    """The item with its value changed, be it a member of an object or an item of an array."""
    return (item[0], change(item[1])) if isinstance(item, tuple) else change(item)


@st.composite
def mutated(draw: st.DrawFn, bodies: Sequence[Any]) -> bytes:
    """The bytes of one of the bodies after a few changes; seldom none at all."""
    body = mutable(draw(st.sampled_from(bodies)))
    for _ in range(draw(st.integers(1, 3))):
        found = list(places(body))
        if found:
            _change(draw, found)
    raw = written(body).encode(errors="surrogatepass")
    return _cut(draw, raw) if draw(st.integers(0, 9)) == 9 else raw


def _change(draw: st.DrawFn, found: list[Place]) -> None:
    items, index = draw(st.sampled_from(found))
    match draw(st.sampled_from(("replace", "replace", "move", "drop", "repeat", "nest", "rename"))):
        case "replace":
            literal = Literal(draw(st.sampled_from(LITERALS)))
            items[index] = changed(items[index], lambda _: literal)
        case "move":
            there, place = draw(st.sampled_from(found))
            other = there[place]
            text = Literal(written(other[1] if isinstance(other, tuple) else other))
            items[index] = changed(items[index], lambda _: text)
        case "drop":
            del items[index]
        case "repeat":
            items[index:index] = [items[index]] * draw(st.sampled_from((1, 2, 30)))
        case "nest":
            nest = draw(st.sampled_from((lambda value: [value], lambda value: Members([("a", value)]))))
            items[index] = changed(items[index], nest)
        case "rename" if isinstance(items[index], tuple):
            items[index] = (draw(st.sampled_from(NAMES)), items[index][1])


def _cut(draw: st.DrawFn, raw: bytes) -> bytes:
    """The bytes with an end, a piece or an insertion that is not JSON's."""
    start = draw(st.integers(0, len(raw)))
    end = min(len(raw), start + draw(st.integers(0, 20)))
    return raw[:start] + draw(st.binary(max_size=8)) + draw(st.sampled_from((raw[end:], b"")))
