"""Cases of the areas "stop" and "stream-text": what of a text may be sent, and when."""

import random
from typing import Any

import pytest

from tests.server.harness import CHAT, http_client
from tests.server.scripted.engine import ScriptedModel, ScriptedService
from tests.server.scripted.joined import events, joined

LETTERS = "abcdé😀 世\n"


def random_tokens(chance: random.Random) -> list[str]:
    return ["".join(chance.choices(LETTERS, k=chance.randint(2, 6))) for _ in range(20)]


async def text_of(model: ScriptedModel, path: str, body: dict[str, Any]) -> tuple[str, str, int]:
    """The text, the finish reason and the tokens of one choice, streamed and whole alike."""
    streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
    async with http_client(model) as client:
        whole = (await client.post(path, json=body)).json()
        raw = (await client.post(path, json=streamed)).text
    choice, tokens = whole["choices"][0], whole["usage"]["completion_tokens"]
    if path.startswith("/v1/chat"):
        stream = joined(raw).choices[0]
        assert stream.finish is not None and stream.finish["finish_reason"] == choice["finish_reason"]
        assert stream.content == choice["message"]["content"]
        return stream.content, choice["finish_reason"], tokens
    chunks = events(raw)
    text = "".join(chunk["choices"][0]["text"] for chunk in chunks[:-1])
    assert (text, chunks[-2]["choices"][0]["finish_reason"]) == (choice["text"], choice["finish_reason"])
    return text, choice["finish_reason"], tokens


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_bb_003_a_stop_string_across_tokens_leaks_nothing(path: str) -> None:
    """BB-003: the text ends exactly before the first occurrence, streamed and not, for 50 random picks."""
    chance = random.Random(3)
    base = {"model": "scripted", "max_tokens": 50, **({"prompt": "x"} if path == "/v1/completions" else CHAT)}
    for _ in range(50):
        tokens = random_tokens(chance)
        text = "x" + "".join(tokens)  # a first character that is no white space, which chats trim
        place = chance.randrange(len(tokens) - 1)
        stop = tokens[place][len(tokens[place]) // 2 :] + tokens[place + 1][: max(1, len(tokens[place + 1]) // 2)]
        model = ScriptedModel(ScriptedService(["x", *tokens]))
        content, reason, count = await text_of(model, path, {**base, "stop": [stop]})
        assert (content, reason) == (text[: text.index(stop)], "stop")
        assert count <= place + 3


async def test_bb_003_of_overlapping_stops_the_earliest_beginning_counts() -> None:
    """BB-003: when the first match completes, the text is cut before the match that starts earliest."""
    model = ScriptedModel(ScriptedService(["1a", "bc", "d"]))
    content, reason, _ = await text_of(model, "/v1/chat/completions", {**CHAT, "stop": ["bcd", "abcd", "c"]})
    assert (content, reason) == ("1ab", "stop")


async def test_bb_003_what_looked_like_a_stop_is_sent_in_the_end() -> None:
    """BB-003: text that was held back and became no stop string is not lost."""
    model = ScriptedModel(ScriptedService(["one ", "tw"]))
    content, reason, _ = await text_of(model, "/v1/chat/completions", {**CHAT, "stop": "two"})
    assert (content, reason) == ("one tw", "stop")


async def test_bb_003_the_stop_string_is_kept_where_asked_for_and_named() -> None:
    """BB-003: include_stop_str_in_output, and stop_reason says which one it was."""
    model = ScriptedModel(ScriptedService(["one ", "two", " three"]))
    body = {**CHAT, "stop": ["two"], "include_stop_str_in_output": True}
    assert (await text_of(model, "/v1/chat/completions", body))[0] == "one two"
    async with http_client(model) as client:
        choice = (await client.post("/v1/chat/completions", json=body)).json()["choices"][0]
    assert choice["stop_reason"] == "two"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_bb_001_every_line_of_a_stream_is_sound_utf_8(path: str) -> None:
    """BB-001: joined deltas equal the whole text, with no replacement character."""
    pieces = ["赵", "🧑‍🚀", "é", "한", "😀", "ß"]
    base = {"prompt": "x", "model": "scripted"} if path == "/v1/completions" else CHAT
    text, _, _ = await text_of(ScriptedModel(ScriptedService(pieces)), path, base)
    assert text == "".join(pieces) and "\ufffd" not in text
