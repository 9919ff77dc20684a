"""Streamed answers over a bare connection: their events, refusals, and what ends them early."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from clients.client import ApiError
from clients.exchange import Address, Exchange
from clients.streamed import Streamed, ask
from engine.errors import EngineFaultError
from tests.server.harness import live_server
from tests.server.scripted.engine import ScriptedModel, ScriptedService, scripted_model

CHAT = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]}
TEXT = {"model": "scripted", "prompt": [1, 2, 3]}


@asynccontextmanager
async def raw_server(*parts: bytes) -> AsyncIterator[Address]:
    """Answers one connection with these bytes, a part at a time, and closes it."""
    is_over = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.001)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        is_over.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1])
        await is_over.wait()


@pytest.mark.parametrize("read_later", [False, True])
async def test_chats_and_texts_are_read_alike(read_later: bool) -> None:
    with live_server(scripted_model("Hello", " wörld")) as server:
        for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)):
            answer = Streamed()
            await ask(Address.of(server.url), path, body, answer, read_later=read_later)
            assert (answer.text, answer.finish_reason, answer.output_tokens) == ("Hello wörld", "stop", 2)
            assert len(answer.times) == 2 and answer.sent <= answer.times[0] <= answer.times[1]
            assert answer.ended is not None and answer.timings["predicted_n"] == 2


async def test_a_refusal_has_the_servers_words_and_headers() -> None:
    with live_server(ScriptedModel(ScriptedService(max_open=0))) as server:
        with pytest.raises(ApiError, match="requests are waiting already") as refused:
            await ask(Address.of(server.url), "/v1/completions", TEXT, Streamed())
        exchange = await Exchange.open(Address.of(server.url), lambda part: None)
        exchange.send(Address.of(server.url).post("/v1/completions", TEXT))
        await exchange.wait()
    assert (refused.value.status, exchange.status, exchange.headers["retry-after"]) == (429, 429, "2")


@pytest.mark.parametrize("read_later", [False, True])
async def test_an_error_in_mid_stream_is_raised_and_what_came_before_is_kept(read_later: bool) -> None:
    answer = Streamed()
    broken = scripted_model("a", EngineFaultError("It broke."))
    with live_server(broken) as server, pytest.raises(ApiError, match="It broke"):
        await ask(Address.of(server.url), "/v1/completions", TEXT, answer, read_later=read_later)
    assert answer.text == "a"


async def test_cancelling_abandons_the_request() -> None:
    answer = Streamed()
    with live_server(scripted_model("a", asyncio.Event())) as server:
        task = asyncio.create_task(ask(Address.of(server.url), "/v1/completions", TEXT, answer))
        while not answer.times:
            await asyncio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        while not server.model.service.aborted:
            await asyncio.sleep(0.01)
    assert answer.ended is None


async def test_events_may_be_cut_anywhere() -> None:
    body = b': ping\n\ndata: {"choices":[{"text":"a"}]}\n\ndata: {"choices":[{"text":"b"}]}\n\ndata: [DONE]\n\n'
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with raw_server(head, body[:4], body[4:30], body[30:75], body[75:]) as address:
        answer = Streamed()
        await ask(address, "/", {}, answer)
    assert answer.pieces == ["a", "b"]


@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort", b"no HTTP at all\r\n\r\n"],
    ids=["nothing", "cut short", "no HTTP"],
)
async def test_an_answer_that_is_none_is_a_connection_error(said: bytes) -> None:
    async with raw_server(said) as address:
        with pytest.raises(ConnectionError):
            await ask(address, "/", {}, Streamed())


async def test_a_refusal_in_another_shape_is_still_one() -> None:
    async with raw_server(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nbad") as address:
        with pytest.raises(ApiError, match="502: bad"):
            await ask(address, "/", {}, Streamed())


def test_addresses_are_read_from_urls() -> None:
    assert Address.of("http://localhost:8080") == Address("localhost", 8080)
    assert Address.of("https://example.org") == Address("example.org", 443, is_secure=True)
    assert b"Host: [::1]:80\r\n" in Address.of("http://[::1]").post("/", {})
    with pytest.raises(ValueError, match="write it as"):
        Address.of("localhost:8080")
