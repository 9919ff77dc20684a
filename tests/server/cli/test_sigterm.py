"""SIGTERM while 64 streams run, in a process of its own: every one is complete, or its last event says why not."""

import asyncio
import signal
from collections.abc import Sequence

import httpx
import orjson
import pytest

from tests.server.cli.test_serve import Process, serving
from tests.server.harness import CHAT

STREAMS = 64
LONG = "x" * 100  # what the script "long" says


async def streamed(client: httpx.AsyncClient, begun: asyncio.Semaphore) -> str:
    body = {**CHAT, "stream": True}
    async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert answer.status_code == 200
        pieces: list[str] = []
        async for piece in answer.aiter_text():
            if not pieces:
                begun.release()
            pieces.append(piece)
    return "".join(pieces)


async def all_streams(process: Process, signals: Sequence[signal.Signals]) -> tuple[list[str], list[int]]:
    """What each stream received, and the statuses of requests and probes that came after the first signal."""
    begun = asyncio.Semaphore(0)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=process.url, timeout=60, limits=limits) as client:
        streams = [asyncio.create_task(streamed(client, begun)) for _ in range(STREAMS)]
        for _ in streams:
            await begun.acquire()
        process.child.send_signal(signals[0])
        while (await client.get("/health")).status_code == 200:
            await asyncio.sleep(0.01)
        late = await client.post("/v1/chat/completions", json=CHAT)
        ready = await client.get("/ready")
        for number in signals[1:]:
            process.child.send_signal(number)
        texts = await asyncio.gather(*streams)
    return texts, [late.status_code, ready.status_code]


def events_of(text: str) -> list[str]:
    assert text.endswith("\n\n")
    return [frame.removeprefix("data: ") for frame in text.split("\n\n") if frame.startswith("data: ")]


def content_of(text: str) -> str:
    chunks = [orjson.loads(event) for event in events_of(text) if event != "[DONE]"]
    return "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk.get("choices", []))


async def test_all_64_complete_within_the_drain() -> None:
    """BB-063, G7."""
    with serving("long", drain=30) as process:
        assert process.is_up()
        texts, late = await all_streams(process, [signal.SIGTERM])
        code, errors = process.end()
    assert (code, late) == (0, [503, 503])
    assert [content_of(text) for text in texts] == [LONG] * STREAMS
    assert {events_of(text)[-1] for text in texts} == {"[DONE]"}
    assert errors.count("end=stop ") + errors.count("end=stop\n") == STREAMS and "Traceback" not in errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_what_outlasts_the_drain_ends_with_an_event_that_says_so(number: signal.Signals) -> None:
    """BB-063, G7."""
    with serving("endless", drain=0.5) as process:
        assert process.is_up()
        texts, late = await all_streams(process, [number])
        code, errors = process.end()
    assert (code, late) == (0, [503, 503])
    for text in texts:
        *_, error, done = events_of(text)
        assert done == "[DONE]"
        assert orjson.loads(error)["error"]["code"] == "not_ready"
    assert "Traceback" not in errors
