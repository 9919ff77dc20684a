"""Tokens that are written as the engine delivers them: real sockets, the engine's own streams, and tests that deliver.

What comes out must not show which way it went: order, completeness, errors, comments and ends are those of all streams.
"""

import asyncio
import gc
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import orjson
import pytest

from engine.api.request import Event, FinishEvent, FinishReason, Request, TextEvent, Token
from engine.errors import EngineFaultError, OctavoError
from engine.run.event_stream import EventStream
from server.api.chat import ChatReply
from server.settings import ServingOptions
from server.wire.http_writes import StreamedBody
from tests.server.generate.test_stream import chunks, frames
from tests.server.harness import CHAT, LiveServer, live_server
from tests.server.scripted.engine import TIMINGS, ScriptedModel, ScriptedService
from tests.server.wire.test_disconnect import eventually

FINISH = FinishEvent(reason=FinishReason.STOP, prompt_tokens=1, completion_tokens=2, timings=TIMINGS)
STREAMED = {**CHAT, "stream": True}


class Streams(ScriptedService):
    """Hands the engine's own streams out, and leaves their events to the test."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: list[EventStream] = []

    def submit(self, *requests: Request) -> list[EventStream]:  # type: ignore[override]
        made = [EventStream(partial(self.aborted.append, request.id)) for request in requests]
        self.streams += made
        return made


class Delivering:
    """A server, and the engine's part, which the test plays."""

    def __init__(self, server: LiveServer, service: Streams) -> None:
        self.server = server
        self.service = service

    def deliver(self, *items: Event | OctavoError, choice: int = 0) -> None:
        """Deliver to one stream, all in one turn of the event loop as a step does."""
        assert eventually(lambda: len(self.service.streams) > choice)

        def play() -> None:
            for item in items:
                self.service.streams[choice].deliver(item)

        self.server.loop.call_soon_threadsafe(play)

    def wait_for_turns(self) -> None:
        """Until the event loop has done what it has to do now."""

        async def turns() -> None:
            for _ in range(10):
                await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(turns(), self.server.loop).result(timeout=10)


@contextmanager
def delivering(options: ServingOptions | None = None) -> Iterator[Delivering]:
    service = Streams()
    with live_server(ScriptedModel(service), options) as server:
        yield Delivering(server, service)


@contextmanager
def streaming() -> Iterator[tuple[Delivering, Iterator[bytes]]]:
    """A chat whose head has come, and whose task waits for the engine; and what else comes of it."""
    with (
        delivering() as play,
        httpx.stream("POST", f"{play.server.url}/v1/chat/completions", json=STREAMED) as answer,
    ):
        raw = answer.iter_raw()
        next(raw)
        play.wait_for_turns()
        yield play, raw


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What has been written at once."""
    written: list[bytes] = []
    write = StreamedBody.write

    def noted(self: StreamedBody, piece: bytes) -> None:
        written.append(piece)
        write(self, piece)

    monkeypatch.setattr(StreamedBody, "write", noted)
    return written


def text(piece: str) -> TextEvent:
    return TextEvent((Token(1, piece),))


def said(body: str) -> list[str]:
    """The content of each chunk that has some, in order."""
    found: list[Any] = chunks(body)
    deltas = [choice["delta"] for chunk in found for choice in chunk["choices"]]
    return [delta["content"] for delta in deltas if delta.get("content")]


def next_data(answer: Iterator[bytes]) -> str:
    """The next piece of a body that is not a comment."""
    while (piece := next(answer).decode()).startswith(": ping"):
        pass
    return piece


def test_each_token_is_a_piece_of_its_own_and_comes_before_the_next_is_there(pieces: list[bytes]) -> None:
    words = [f"w{number} é" for number in range(20)]
    with (
        delivering() as play,
        httpx.stream("POST", f"{play.server.url}/v1/chat/completions", json=STREAMED) as answer,
    ):
        raw = answer.iter_raw()
        assert next(raw) == b": ping\n\n"
        play.wait_for_turns()  # the stream's task waits for the engine
        body = ""
        for word in words:
            play.deliver(text(word))
            got = next_data(raw)
            assert said(got) == [word]
            body += got
        play.deliver(FINISH)
        body += b"".join(raw).decode()
    assert said(body) == words
    assert len(pieces) == len(words), "no token has waited for the task"
    assert frames(body)[-1] == "data: [DONE]"


def test_a_token_and_the_end_that_come_in_one_step_stay_in_order(pieces: list[bytes]) -> None:
    with streaming() as (play, raw):
        play.deliver(text("a"), text("b"), FINISH)
        body = b"".join(raw).decode()
    assert said(body) == ["a", "b"] and len(pieces) == 2
    last: Any = chunks(body)[-1]
    assert last["choices"][0]["finish_reason"] == "stop"


def test_a_slow_reader_gets_joined_text_in_order_and_is_written_to_at_once_when_he_has_caught_up(
    pieces: list[bytes],
) -> None:
    words = [*(f"{number} ".ljust(200_000, "x") for number in range(100)), "last"]  # more than all buffers hold
    with (
        delivering() as play,
        httpx.stream("POST", f"{play.server.url}/v1/chat/completions", json=STREAMED) as answer,
    ):
        raw = answer.iter_raw()
        body = next(raw).decode()
        play.wait_for_turns()
        for word in words:
            play.deliver(text(word))
        play.wait_for_turns()
        at_once = len(pieces)
        assert 0 < at_once < 60, "a transport that is full is not written to: what waits for it is bounded"
        while 'last"' not in body[-500:]:
            body += next(raw).decode()
        play.wait_for_turns()
        play.deliver(text("caught up"))
        play.deliver(FINISH)
        body += b"".join(raw).decode()
    assert "".join(said(body)) == "".join(words) + "caught up"
    assert len(said(body)) < len(words), "what waited was joined"
    assert len(pieces) == at_once + 1


@pytest.mark.parametrize("end", [EngineFaultError("It broke."), None])
def test_an_error_in_mid_stream_ends_it_after_what_came_before(
    end: OctavoError | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """From the engine, or of our own while a token is written: then the request is aborted."""
    add = ChatReply.add

    def failing(self: ChatReply, update: Any) -> bytes:
        if any(token.text == "bad" for token in update.tokens):
            raise ZeroDivisionError("secret")
        return add(self, update)

    monkeypatch.setattr(ChatReply, "add", failing)
    with streaming() as (play, raw):
        play.deliver(text("a"), end or text("bad"), text("never"))
        body = b"".join(raw).decode()
        assert httpx.get(f"{play.server.url}/health").status_code == 200
        assert len(play.service.aborted) == (end is None)
    assert said(body.rpartition("data: {")[0]) == ["a"]
    error, done = frames(body)[-2:]
    assert done == "data: [DONE]" and '"code":"internal_error"' in error and "secret" not in error
    assert [record.levelname for record in caplog.records if record.name == "octavo.server"] == ["ERROR"]


def test_a_stream_that_is_cancelled_in_mid_stream_says_so_and_nothing_follows(pieces: list[bytes]) -> None:
    headers = {"X-Request-Id": "mine"}
    with (
        delivering() as play,
        httpx.stream("POST", f"{play.server.url}/v1/chat/completions", json=STREAMED, headers=headers) as answer,
    ):
        raw = answer.iter_raw()
        next(raw)
        play.wait_for_turns()
        play.deliver(text("a"))
        body = next_data(raw)
        assert httpx.post(f"{play.server.url}/v1/requests/mine/cancel").status_code == 200
        play.deliver(text("never"))
        body += b"".join(raw).decode()
    assert said(body.rpartition("data: {")[0]) == ["a"] and len(pieces) == 1
    error, done = frames(body)[-2:]
    assert orjson.loads(error.removeprefix("data: "))["error"]["code"] == "request_cancelled"
    assert done == "data: [DONE]" and len(play.service.aborted) == 1


def test_who_leaves_in_mid_stream_is_written_to_no_more_and_aborts(pieces: list[bytes]) -> None:
    with delivering() as play:
        with httpx.stream("POST", f"{play.server.url}/v1/chat/completions", json=STREAMED) as answer:
            raw = answer.iter_raw()
            next(raw)
            play.wait_for_turns()
            play.deliver(text("a"))
            assert said(next_data(raw)) == ["a"]
        assert eventually(lambda: len(play.service.aborted) == 1)
        play.deliver(text("never"), FINISH)
        play.wait_for_turns()
    assert len(pieces) == 1


def test_comments_come_only_where_nothing_is_told_for_a_while(pieces: list[bytes]) -> None:
    with (
        delivering(ServingOptions(ping_seconds=0.6, drain_seconds=0)) as play,
        httpx.stream("POST", f"{play.server.url}/v1/chat/completions", json=STREAMED) as answer,
    ):
        raw = answer.iter_raw()
        assert next(raw) == b": ping\n\n"
        play.wait_for_turns()
        body = ""
        for number in range(25):
            play.deliver(text(f"{number} "))
            body += next(raw).decode()
            time.sleep(0.03)
        assert len(pieces) == 25 and ": ping" not in body
        while ": ping" not in body:
            body += next(raw).decode()
        play.deliver(text("late"), FINISH)
        body += b"".join(raw).decode()
    assert "".join(said(body)) == "".join(f"{number} " for number in range(25)) + "late"
    assert all(frame == ": ping" or frame.startswith("data: ") for frame in frames(body))


def test_of_several_choices_all_go_the_waiting_way(pieces: list[bytes]) -> None:
    with (
        delivering() as play,
        httpx.stream("POST", f"{play.server.url}/v1/chat/completions", json={**STREAMED, "n": 2}) as answer,
    ):
        raw = answer.iter_raw()
        next(raw)
        for choice in (1, 0):
            play.deliver(text("a"), FINISH, choice=choice)
        body = b"".join(raw).decode()
    assert said(body) == ["a", "a"] and pieces == []
    assert frames(body)[-1] == "data: [DONE]"


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/completions", {"prompt": "Hi"}),
        ("/v1/messages", {"messages": CHAT["messages"], "max_tokens": 9}),
        ("/v1/responses", {"input": "Hi"}),
    ],
)
def test_every_api_streams_so(path: str, asked: dict[str, object], pieces: list[bytes]) -> None:
    with (
        delivering() as play,
        httpx.stream("POST", f"{play.server.url}{path}", json={"model": "scripted", "stream": True, **asked}) as answer,
    ):
        raw = answer.iter_raw()
        body = next(raw)
        play.wait_for_turns()
        for word in ("one ", "two ", "three"):
            play.deliver(text(word))
            body += next(raw)
        play.deliver(FINISH)
        body += b"".join(raw)
    places = [body.index(word) for word in (b'"one "', b'"two "', b'"three"')]
    assert places == sorted(places) and len(pieces) == 3


def test_a_request_leaves_nothing_for_the_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[StreamedBody]] = []
    begin = StreamedBody.__init__

    def noted(self: StreamedBody, *arguments: Any) -> None:
        begin(self, *arguments)
        made.append(weakref.ref(self))

    monkeypatch.setattr(StreamedBody, "__init__", noted)
    with delivering() as play, httpx.Client() as client:
        gc.disable()
        try:
            for _ in range(3):
                client.get(f"{play.server.url}/health")
            play.wait_for_turns()
            assert [body() for body in made[:-1]] == [None, None]  # the connection remembers its last
        finally:
            gc.enable()
