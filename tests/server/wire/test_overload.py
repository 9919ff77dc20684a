"""More requests than places: the excess hears 429 at once, the rest is answered, and then all is as before."""

import asyncio
import os
import resource
from dataclasses import dataclass
from pathlib import Path

import httpx
import orjson
import pytest

from server.app import create_app
from tests.server.harness import CHAT, LiveServer, http_client, live_server, ready_serving
from tests.server.scripted.engine import ScriptedModel, ScriptedService

CROWD = int(os.environ.get("OCTAVO_TEST_CROWD", "300"))  # 2000 once, by hand: it takes that many sockets, twice
PLACES = 72


async def test_of_two_thousand_at_once_the_accepted_finish_and_the_rest_is_told_when_to_return() -> None:
    """BB-061, G14."""
    gate = asyncio.Event()
    model = ScriptedModel(ScriptedService(["a", gate, "b"], max_open=132))
    serving = await ready_serving(model)
    transport = httpx.ASGITransport(app=create_app(serving))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        calls = [asyncio.create_task(client.post("/v1/chat/completions", json=CHAT)) for _ in range(2000)]
        while sum(call.done() for call in calls) < 2000 - 132:
            await asyncio.sleep(0.01)
        gate.set()
        answers = await asyncio.gather(*calls)
        after = await client.post("/v1/chat/completions", json=CHAT)
    accepted = [answer for answer in answers if answer.status_code == 200]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert (len(accepted), len(refused), after.status_code) == (132, 1868, 200)
    assert {answer.json()["choices"][0]["message"]["content"] for answer in accepted} == {"ab"}
    assert {answer.headers["retry-after"] for answer in refused} == {"2"}
    assert {answer.json()["error"]["code"] for answer in refused} == {"rate_limit_exceeded"}
    assert all("try again in about 2 s" in answer.json()["error"]["message"] for answer in refused)
    assert (len(serving.open_requests), model.service.running) == (0, 0)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_full_queue_is_a_429_before_any_stream_begins(stream: bool) -> None:
    model = ScriptedModel(ScriptedService(["a"], max_open=0))
    async with http_client(model) as client:
        answer = await client.post("/v1/chat/completions", json={**CHAT, "stream": stream})
    assert (answer.status_code, answer.headers["content-type"]) == (429, "application/json")


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"]
)
async def test_a_full_queue_refuses_before_it_reads_a_body(path: str) -> None:
    model = ScriptedModel(ScriptedService(["a"], max_open=0))
    async with http_client(model) as client:
        answer = await client.post(path, content=b"{ no JSON at all")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")


async def test_a_refused_body_gives_its_place_back() -> None:
    model = ScriptedModel(ScriptedService(["a"], max_open=1))
    async with http_client(model) as client:
        for _ in range(3):
            assert (await client.post("/v1/chat/completions", json={**CHAT, "n": "many"})).status_code == 400
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200


@dataclass(frozen=True)
class Answer:
    """What came over one connection, chunks of its body and all: an HTTP client is too slow for a crowd."""

    raw: str

    @property
    def status(self) -> int:
        return int(self.raw.split(" ", 2)[1])

    @property
    def is_complete(self) -> bool:
        """Whether it has all the text: as one JSON object, or as a stream up to its last event."""
        whole = '"content":"ab"' in self.raw
        streamed = '"content":"a"' in self.raw and '"content":"b"' in self.raw and "data: [DONE]" in self.raw
        return whole or streamed


def test_a_crowd_on_a_real_socket_is_answered_or_told_when_to_return() -> None:
    gate = asyncio.Event()
    model = ScriptedModel(ScriptedService(["a", gate, "b"], max_open=PLACES))
    allow_files(2 * CROWD + 500)
    with live_server(model) as server:
        answers, grown, after = asyncio.run(crowd(server, gate))
    accepted = [answer for answer in answers if answer.status == 200]
    refused = [answer for answer in answers if answer.status == 429]
    assert (len(accepted), len(refused)) == (PLACES, CROWD - PLACES)
    assert all(answer.is_complete for answer in accepted)
    assert all("\r\nretry-after: 2\r\n" in answer.raw.lower() for answer in refused)
    assert after.status == 200 and after.is_complete
    assert model.service.running == 0 and model.service.aborted == []
    assert grown < 300 << 20  # both ends of every connection


async def crowd(server: LiveServer, gate: asyncio.Event) -> tuple[list[Answer], int, Answer]:
    """All answers to the crowd, half of them streams; what it took of memory at its worst; and an answer after it."""
    before = resident_bytes()
    calls = [asyncio.create_task(asked(server.port, stream=index % 2 == 1)) for index in range(CROWD)]
    while sum(call.done() for call in calls) < CROWD - PLACES:
        await asyncio.sleep(0.02)
    grown = resident_bytes() - before
    server.loop.call_soon_threadsafe(gate.set)
    return await asyncio.gather(*calls), grown, await asked(server.port, stream=False)


async def asked(port: int, *, stream: bool) -> Answer:
    body = orjson.dumps({**CHAT, "stream": stream})
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode() + body)
    raw = await reader.read()
    writer.close()
    await writer.wait_closed()
    return Answer(raw.decode())


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= count > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
