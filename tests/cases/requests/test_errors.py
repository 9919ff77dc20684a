"""Area errors: what is no request at all is a 400 in OpenAI's shape, and the engine goes on."""

import gzip
from typing import Any

import pytest

from tests.cases.real import CHAT_PATH, HI, TEXT_PATH, Json, RealServer

PROMPTS: list[Any] = [
    *([], [[]], ["a", []], [[-1]], [[99999999]], [320], [2**70], [1.5], [1, "a"], ["a", 1], [True], [[[1]]], {}, 5),
    *(False, [None], ["a", None], [["a"]], [{"text": "a"}], [[1], "a"]),
]
CHATS: list[Any] = [
    *([], {}, "hi", 5, [None], ["hi"], [[]], [{}], [{"role": "user"}], [{"content": "x"}]),
    *([{"role": "user", "content": 5}], [{"role": "user", "content": {}}], [{"role": 5, "content": "x"}]),
    *([{"role": "user", "content": None}], [{"role": "user", "content": [None]}], [{"role": "tool", "content": "x"}]),
    *([{"role": "user", "content": ["x"]}], [*HI, {"role": "assistant", "content": "x", "tool_calls": [{}]}]),
]
BODIES: dict[str, bytes] = {
    **{repr(text): text.encode() for text in ("", "null", "[]", "5", '"x"', "{", "}", "true", '{"a":}', "{'a': 1}")},
    "no UTF-8": b'{"model": "\xff"}',
    "UTF-16": '{"model": "plain"}'.encode("utf-16"),
    "NUL": b"\x00" * 100,
    "two objects": b"{}{}",
    "deep": b'{"a":' * 5000,
    "gzip": gzip.compress(b'{"model": "plain"}'),
    "form": b"model=plain&prompt=x",
}


@pytest.fixture(autouse=True)
def canary(plain: RealServer) -> Any:
    """The same short answer after every test of this file: the engine is alive, and its state is sound."""
    fields: Json = {"prompt": "canary", "temperature": 0, "max_tokens": 6, "ignore_eos": True}
    before = plain.complete(**fields)["choices"]
    yield
    assert plain.complete(**fields)["choices"] == before
    assert plain.is_idle()


@pytest.mark.parametrize("stream", [False, True])
def test_prompts_that_are_none(plain: RealServer, stream: bool) -> None:
    """BB-056: a prompt of nothing, or of ids that are none, is an assertion in the engine and its end."""
    for prompt in [*PROMPTS, "", [""]]:
        error = plain.refusal(TEXT_PATH, {"prompt": prompt, "max_tokens": 2, "stream": stream})
        assert error["type"] == "invalid_request_error" and error["param"].startswith("prompt"), prompt
    error = plain.refusal(TEXT_PATH, {"max_tokens": 2})
    assert (error["param"], error["code"]) == ("prompt", "missing_required_parameter")
    assert plain.refusal(TEXT_PATH, {"prompt": None})["param"] == "prompt"


def test_where_bos_gives_a_token_an_empty_prompt_is_one(pieces: RealServer) -> None:
    """BB-056: '' and [''] are prompts of BOS alone."""
    for prompt in ("", [""]):
        assert pieces.complete(prompt=prompt, max_tokens=2)["usage"]["prompt_tokens"] == 1


@pytest.mark.parametrize("stream", [False, True])
def test_chats_that_are_none(plain: RealServer, stream: bool) -> None:
    """BB-056."""
    for messages in CHATS:
        error = plain.refusal(CHAT_PATH, {"messages": messages, "max_tokens": 2, "stream": stream})
        assert error["type"] == "invalid_request_error" and error["param"].startswith("messages"), messages


def test_an_empty_message_is_a_message(plain: RealServer) -> None:
    """BB-056: its turn is there, with nothing in it."""
    for role in ("user", "system", "assistant"):
        answer = plain.chat(messages=[{"role": role, "content": ""}], max_tokens=2)
        assert answer["usage"]["completion_tokens"] <= 2


@pytest.mark.parametrize("path", [CHAT_PATH, TEXT_PATH, "/v1/embeddings", "/tokenize", "/v1/responses"])
def test_bodies_that_are_no_json_object(plain: RealServer, path: str) -> None:
    """BB-056."""
    for name, body in BODIES.items():
        for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded", None):
            answer = plain.http.post(path, content=body, headers={"Content-Type": kind} if kind else {})
            assert answer.status_code in ((400,) if kind == "application/json" else (415,)), name
            assert answer.json()["error"].keys() >= {"message", "type", "param", "code"}


def test_a_compressed_body_is_refused_and_not_inflated(plain: RealServer) -> None:
    """BB-056: gzip is not taken for JSON, whatever the header says."""
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = plain.http.post(TEXT_PATH, content=gzip.compress(b" " * 10**7), headers=headers)
    assert answer.status_code in (400, 415)


def test_of_a_key_that_stands_twice_the_last_counts(plain: RealServer) -> None:
    """BB-056: as in every JSON parser that people use."""
    body = b'{"model": "plain", "prompt": [], "prompt": "x", "max_tokens": 9, "max_tokens": 1}'
    answer = plain.http.post(TEXT_PATH, content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["usage"]["total_tokens"]) == (200, 2)


def test_text_that_is_no_text_is_survived(plain: RealServer) -> None:
    """BB-056: NUL, lone surrogates, noncharacters, and characters that turn the writing around."""
    for text in ("\x00", "\ud800", "\udfff\ud800", "\ufffe\uffff", "\u202e", "\U0010ffff", "a\u0000b"):
        escaped = f'{{"model": "plain", "prompt": "{_escaped(text)}", "max_tokens": 1}}'
        answer = plain.http.post(TEXT_PATH, content=escaped, headers={"Content-Type": "application/json"})
        assert answer.status_code in (200, 400), text
        assert answer.status_code == 200 or answer.json()["error"]["code"] == "invalid_json"


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place]:02x}{units[place + 1]:02x}" for place in range(0, len(units), 2))
