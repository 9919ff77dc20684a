"""Area stream-text: characters arrive whole, however many tokens they are made of."""

import json
from typing import Any

import pytest

from tests.cases.real import CHAT_PATH, HI, RealServer
from tests.server.scripted.joined import events

WORD = "赵🧑‍🚀é한😀ß"
ENUM = {
    "type": "json_schema",
    "json_schema": {"name": "e", "strict": True, "schema": {"type": "string", "enum": [WORD]}},
}
SERVERS = ("plain", "calls", "pieces")


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> RealServer:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


def test_forced_characters_of_many_tokens_arrive_whole(server: RealServer) -> None:
    """BB-001: one character made of several byte tokens is sent as broken halves, or as U+FFFD."""
    (choice,) = server.choices(response_format=ENUM, temperature=0, max_tokens=200)
    assert json.loads(choice.content) == WORD
    assert "\ufffd" not in choice.content


@pytest.mark.parametrize("form", ["structured_outputs", "regex", "arguments", "n"])
def test_so_they_do_wherever_text_comes_from(calls: RealServer, form: str) -> None:
    """BB-001: by a choice, by a regular expression, as arguments of a call, and in each of several answers."""
    tool = {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {"s": {"enum": [WORD]}},
                "required": ["s"],
                "additionalProperties": False,
            },
        },
    }
    forms: dict[str, dict[str, Any]] = {
        "structured_outputs": {"structured_outputs": {"choice": [WORD]}},
        "regex": {"regex": f"({WORD}){{3}}"},
        "arguments": {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False},
        "n": {"response_format": ENUM, "n": 3},
    }
    choices = calls.choices(max_tokens=300, **forms[form])
    for choice in choices:
        text = choice.content or choice.calls[0]["arguments"]
        assert text.count(WORD) == (3 if form == "regex" else 1)
        assert "\ufffd" not in text


def test_so_they_do_in_plain_completions(server: RealServer) -> None:
    """BB-001."""
    text, reason, _ = server.texts(structured_outputs={"choice": [WORD]}, max_tokens=200)
    assert (text, reason) == (WORD, "stop")


@pytest.mark.parametrize("seed", range(6))
def test_what_is_no_character_is_replaced_alike_streamed_and_whole(server: RealServer, seed: int) -> None:
    """BB-001: random weights write random bytes; every line is sound JSON all the same, cut wherever it may be."""
    server.choices(temperature=1.5, seed=seed, max_tokens=40 + seed, logit_bias=_without_ends(server))
    server.texts(temperature=1.5, seed=seed, max_tokens=40 + seed)


def test_no_delta_splits_a_character(server: RealServer) -> None:
    """BB-001: each delta by itself is whole characters, also when a stop string may be among them."""
    body = {
        "messages": HI,
        "regex": f"({WORD}){{2}}",
        "stop": [WORD[1:3] + "x", "ßß"],
        "max_tokens": 200,
        "stream": True,
    }
    deltas = [
        choice["delta"].get("content", "")
        for chunk in events(server.post(CHAT_PATH, body).content.decode())
        for choice in chunk["choices"]
    ]
    assert "".join(deltas) == WORD * 2
    assert not any("\ufffd" in delta for delta in deltas)


def _without_ends(server: RealServer) -> dict[str, int]:
    return {str(token): -100 for token in server.model.tokenizer.end_ids}
