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


ENDS = "a\u2028b\u2029c\u0085d"
ENDS_SCHEMA = {"const": ENDS}
ENDS_FORMAT = {"type": "json_schema", "json_schema": {"name": "u", "schema": ENDS_SCHEMA}}
ENDS_TOOL = {"type": "object", "properties": {"s": ENDS_SCHEMA}, "required": ["s"], "additionalProperties": False}
TELLING: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT_PATH, {"messages": HI, "response_format": ENDS_FORMAT}),
    "two answers": (CHAT_PATH, {"messages": HI, "response_format": ENDS_FORMAT, "n": 2}),
    "logprobs": (CHAT_PATH, {"messages": HI, "response_format": ENDS_FORMAT, "logprobs": True, "top_logprobs": 2}),
    "a call": (
        CHAT_PATH,
        {
            "messages": HI,
            "tools": [{"type": "function", "function": {"name": "f", "parameters": ENDS_TOOL}}],
            "tool_choice": "required",
            "parallel_tool_calls": False,
        },
    ),
    "metadata": (CHAT_PATH, {"messages": HI, "metadata": {"name": ENDS}, "response_format": ENDS_FORMAT}),
    "echo": ("/v1/completions", {"prompt": ENDS, "echo": True, "max_tokens": 1}),
    "completions": ("/v1/completions", {"prompt": "Hi", "structured_outputs": {"choice": [ENDS]}}),
    "responses": (
        "/v1/responses",
        {"input": "Hi", "text": {"format": {"type": "json_schema", "name": "u", "schema": ENDS_SCHEMA}}},
    ),
    "messages": (
        "/v1/messages",
        {
            "messages": HI,
            "max_tokens": 200,
            "tools": [{"name": "f", "input_schema": ENDS_TOOL}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        },
    ),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("form", TELLING)
def test_no_line_ends_within_an_event_or_an_answer(calls: RealServer, form: str, stream: bool) -> None:
    """NB-08: what splits an answer at any end of a line that Unicode knows finds whole JSON, and all of the text."""
    path, body = TELLING[form]
    answer = calls.post(path, {"temperature": 0, **body, "stream": stream})
    assert answer.status_code == 200, answer.text
    assert not any(end in answer.text for end in ENDS[1::2])
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if "{" in line]
    told = [json.loads(line) for line in lines]
    assert len(told) > 1 if stream else len(told) == 1
    assert _has_ends(told)


def _has_ends(told: list[Any]) -> bool:
    """Whether the characters stand in the strings of what was told, in their order."""
    found = "".join(_strings(told))
    return found.count("\u2028") > 0 and found.count("\u2029") > 0 and found.count("\u0085") > 0


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in _strings(one)]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"prompt": ENDS, "with_pieces": True, "return_token_strs": True}),
        ("/apply-template", {"messages": [{"role": "user", "content": ENDS}]}),
        (CHAT_PATH, {"messages": HI, ENDS: 1, "tools": ENDS}),
        ("/v1/messages", {"messages": HI, "max_tokens": ENDS}),
        (CHAT_PATH, {"messages": HI, "model": ENDS}),
    ],
)
def test_so_it_is_in_every_other_answer(calls: RealServer, path: str, body: dict[str, Any]) -> None:
    """NB-08: texts of prompts, and errors that quote what was sent."""
    answer = calls.post(path, body)
    assert len(answer.text.splitlines()) == 1
    assert isinstance(answer.json(), dict)
