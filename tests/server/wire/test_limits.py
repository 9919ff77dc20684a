"""How deep a body may nest, against a plain count."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import RequestError
from server.wire import limits
from server.wire.limits import MAX_DEPTH, check_depth
from tests.server.harness import http_client
from tests.server.scripted.engine import scripted_model

NESTED = st.recursive(
    st.none() | st.text('[]{}"\\a', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[{"\\', max_size=4), inner, max_size=3),
    max_leaves=40,
)


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


def counted(value: object) -> int:
    match value:
        case list():
            return 1 + max(map(counted, value), default=0)
        case dict():
            return 1 + max(map(counted, value.values()), default=0)
        case _:
            return 0


@given(NESTED)
def test_the_depth_is_that_of_the_parsed_value(value: object) -> None:
    assert limits._depth(json.dumps(value).encode()) == counted(value)
    assert limits._depth(orjson.dumps(value, option=orjson.OPT_INDENT_2)) == counted(value)


@pytest.mark.parametrize("chunk", [1, 2, 3, 7])
def test_the_count_does_not_depend_on_how_the_body_is_cut(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHUNK", chunk)
    value = {"a]": ["[[[", {'"': ['\\"[', []]}], "b": {"c\\": {}}}
    assert limits._depth(json.dumps(value).encode()) == counted(value) == 5


def test_the_limit_itself_is_allowed_and_one_more_is_not() -> None:
    check_depth(nested(MAX_DEPTH))
    with pytest.raises(RequestError, match=f"deeper than {MAX_DEPTH}"):
        check_depth(nested(MAX_DEPTH + 1))


def test_many_brackets_side_by_side_or_in_text_are_not_deep() -> None:
    check_depth(b"[" + b"[]," * 10_000 + b"[]]")
    check_depth(json.dumps({"text": "[{" * 10_000}).encode())


def test_what_is_not_json_is_left_to_the_parser() -> None:
    for raw in (b"", b"}]" * 500, b'"' * 999, b"\\" * 999, b"[" * MAX_DEPTH):
        check_depth(raw)


async def test_a_body_that_nests_too_deep_is_400_before_it_is_parsed() -> None:
    async with http_client(scripted_model("x")) as client:
        for body in (nested(MAX_DEPTH + 1), b"[" * 1_000_000, b'{"messages":' + b"[" * 100_000):
            headers = {"Content-Type": "application/json"}
            answer = await client.post("/v1/chat/completions", content=body, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")
            assert "deeper" in answer.json()["error"]["message"]
