"""Area security: nothing in a request is a program, and nothing takes more time or memory than it may."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.cases.real import CHAT_PATH, HI, Json, RealServer

ENDLESS_LOOP = "{% for i in range(1000000000) %}{% endfor %}"
RESERVED: dict[str, Any] = {
    "tokenize": True,
    "messages": "x",
    "tools": "x",
    "add_generation_prompt": False,
    "bos_token": "X",
    "eos_token": "X",
    "raise_exception": 1,
    "strftime_now": "x",
    "chat_template": ENDLESS_LOOP,
    "tokenizer_kwargs": "x",
    "continue_final_message": True,
    "documents": "x",
    "self": "x",
    "__class__": "x",
    "_private": "x",
    "a b": "x",
    "": "x",
}


CANARY: Json = {"temperature": 0, "max_tokens": 80, "ignore_eos": True}


@pytest.fixture(scope="module")
def alone(calls: RealServer) -> Any:
    return calls.chat(**CANARY)["choices"]


@pytest.fixture(autouse=True)
def canary(calls: RealServer, alone: Any) -> Any:
    """An answer that runs beside each test has the text that it has alone."""
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(calls.chat, **CANARY)
        yield
        assert beside.result()["choices"] == alone


@pytest.mark.parametrize("path", [CHAT_PATH, "/apply-template", "/v1/chat/completions/render", "/tokenize"])
def test_a_template_of_the_request_is_refused(calls: RealServer, path: str) -> None:
    """BB-080: whoever may ask may also loop for ever, or read what is not theirs."""
    for template in (ENDLESS_LOOP, "{{ messages }}", "{{ ''.__class__.__mro__ }}"):
        error = calls.refusal(path, {"messages": HI, "chat_template": template})
        assert (error["param"], error["code"]) == ("chat_template", "unsupported_parameter")


def test_the_renderers_own_arguments_cannot_be_given(calls: RealServer) -> None:
    """BB-080: they override what the server renders, or block its loop."""
    for name, value in RESERVED.items():
        error = calls.refusal(CHAT_PATH, {"messages": HI, "chat_template_kwargs": {name: value, "x": 1}})
        assert error["param"] == f"chat_template_kwargs.{name}"


def test_values_for_a_template_are_scalars(calls: RealServer) -> None:
    """BB-080."""
    values: list[Any] = [[], {}, [1], {"a": 1}, [[[]]]]
    for value in values:
        error = calls.refusal(CHAT_PATH, {"messages": HI, "chat_template_kwargs": {"x": value}})
        assert error["param"] == "chat_template_kwargs.x"


def test_no_more_than_sixteen_of_them(calls: RealServer) -> None:
    """BB-080."""
    for count, status in ((16, 200), (17, 400)):
        kwargs = {f"k{number}": number for number in range(count)}
        answer = calls.post(CHAT_PATH, {"messages": HI, "chat_template_kwargs": kwargs, "max_tokens": 1})
        assert answer.status_code == status


def of_string(**keywords: Any) -> Json:
    return {"type": "object", "properties": {"x": {"type": "string", **keywords}}, "required": ["x"]}


def chained(depth: int) -> Json:
    schema: Json = {"type": "integer"}
    for _ in range(depth):
        schema = {"allOf": [schema]}
    return schema


BOMBS: dict[str, Any] = {
    "(a+)+b": of_string(pattern="^(a+)+b$"),
    "counts of counts": of_string(pattern="((a{1,500}){1,500}){1,500}"),
    "many stars": of_string(pattern="(.*.*.*.*)x{9999}"),
    "a type that is none": {"type": "something"},
    "a type of a number": {"type": ["string", 5]},
    "a pattern of a number": of_string(pattern=5),
    "100,000 constants": {"enum": [f"v{number}" for number in range(100_000)]},
    "10,000 properties": {"type": "object", "properties": {f"p{number}": {} for number in range(10_000)}},
    "a loop of references": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    "a chain of allOf": chained(40),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_schema_that_is_a_bomb_is_refused_or_obeyed(calls: RealServer, name: str) -> None:
    """BB-082: it hangs the compiler, or ends its worker; here it is a 400, or an answer by the schema."""
    output = {"type": "json_schema", "json_schema": {"name": "b", "schema": BOMBS[name]}}
    answer = calls.post(CHAT_PATH, {"messages": HI, "response_format": output, "max_tokens": 20})
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 400:
        assert answer.json()["error"]["param"].startswith("response_format") and len(answer.text) < 2000


def test_many_different_schemas_are_as_good_as_one(calls: RealServer) -> None:
    """BB-082: each is compiled, and none is kept for ever; the cache is bounded in bytes."""
    for number in range(60):
        schema = {"const": f"schema {number}"}
        output = {"type": "json_schema", "json_schema": {"name": "b", "schema": schema}}
        answer = calls.chat(response_format=output, max_tokens=40)
        assert answer["choices"][0]["message"]["content"] == f'"schema {number}"'


@pytest.mark.parametrize("field", ["regex", "guided_regex"])
def test_a_regular_expression_that_is_a_bomb_is_refused_or_obeyed(calls: RealServer, field: str) -> None:
    """BB-082."""
    for pattern in (
        "(a+)+b",
        "((a{1,500}){1,500}){1,500}",
        "(.*a.{20}){20}",
        "(",
        "a{99999999999}",
        "(?=x)",
        "x" * 100_000,
    ):
        answer = calls.post(CHAT_PATH, {"messages": HI, field: pattern, "max_tokens": 10})
        assert answer.status_code in (200, 400), pattern
        assert answer.status_code == 200 or answer.json()["error"]["param"] == field
