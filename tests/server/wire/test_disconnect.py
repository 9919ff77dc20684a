"""A client that leaves frees its lane, streamed or not; real sockets, real uvicorn."""

import asyncio
import logging
import os
import random
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import httpx
import orjson
import pytest

from server.app import create_app
from server.settings import ServingOptions
from tests.server.harness import CHAT, LiveServer, live_server, ready_serving
from tests.server.scripted.engine import ScriptedModel, Step, scripted_model

ENDLESS: list[Step] = [step for _ in range(100_000) for step in ("x", 0.005)]


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.005)
    return holds


def raw_request(body: dict[str, object]) -> bytes:
    raw = orjson.dumps(body)
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
    return f"{head}\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw


def send_request(port: int, body: dict[str, object]) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(raw_request(body))
    return connection


@pytest.mark.parametrize("stream", [True, False])
def test_closing_the_connection_aborts_the_request(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="octavo.access")
    model = scripted_model(*ENDLESS)
    with live_server(model) as server:
        connection = send_request(server.port, {**CHAT, "stream": stream})
        assert eventually(lambda: model.service.running == 1)
        if stream:
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        connection.close()
        assert eventually(lambda: len(model.service.aborted) == 1 and model.service.running == 0)
        assert eventually(lambda: "end=disconnected" in caplog.text)


def test_a_client_that_leaves_before_the_first_token_frees_its_place() -> None:
    model = scripted_model(asyncio.Event(), "never")
    with live_server(model) as server:
        connections = [send_request(server.port, {**CHAT, "stream": stream}) for stream in (True, False)]
        assert eventually(lambda: model.service.running == 2)
        for connection in connections:
            connection.close()
        assert eventually(lambda: model.service.running == 0 and len(model.service.aborted) == 2)


def test_others_are_not_disturbed_by_one_that_leaves() -> None:
    model = ScriptedModel()
    model.service.script = lambda request: ENDLESS if request.max_tokens is None else ["a", 0.1, "b"]
    with live_server(model) as server:
        leaver = send_request(server.port, {**CHAT, "stream": True})
        assert eventually(lambda: model.service.running == 1)
        leaver.close()
        answer = httpx.post(f"{server.url}/v1/chat/completions", json={**CHAT, "max_tokens": 5})
        assert answer.json()["choices"][0]["message"]["content"] == "ab"


SCOPE = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "path": "/v1/chat/completions",
    "query_string": b"",
    "headers": [(b"content-type", b"application/json")],
    "client": ("127.0.0.1", 1),
    "server": ("127.0.0.1", 2),
}


async def test_a_stream_whose_first_byte_cannot_be_sent_is_aborted_too() -> None:
    model = scripted_model("x")
    app = create_app(await ready_serving(model))
    raw = orjson.dumps({**CHAT, "stream": True})
    messages = [{"type": "http.request", "body": raw, "more_body": False}]

    async def receive() -> dict[str, object]:
        return messages.pop(0) if messages else await asyncio.get_running_loop().create_future()

    async def send(message: object) -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        await app(SCOPE, receive, send)
    assert len(model.service.aborted) == 1


async def test_leaving_within_the_request_is_no_fault_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    app = create_app(await ready_serving(scripted_model("x")))
    messages: list[dict[str, object]] = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent = []

    async def receive() -> dict[str, object]:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await app(SCOPE, receive, send)
    assert sent[0]["status"] == 499 and not caplog.records


def test_a_reader_that_stalls_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="octavo.access")
    model = scripted_model(*["x" * 100_000] * 1000)
    with live_server(model, ServingOptions(send_timeout_seconds=0.05, drain_seconds=0)) as server:
        connection = send_request(server.port, {**CHAT, "stream": True})
        assert eventually(lambda: "end=stalled" in caplog.text)
        connection.close()


def held(server: LiveServer) -> tuple[int, int]:
    """The tasks of a server in this process, and the process's descriptors. (Threads are pooled, and stay.)"""

    async def count_tasks() -> int:
        return len(asyncio.all_tasks())

    tasks = asyncio.run_coroutine_threadsafe(count_tasks(), server.loop).result(timeout=10)
    return tasks, len(os.listdir("/proc/self/fd"))


def kill(connection: socket.socket, chance: random.Random) -> None:
    """Leave as clients do: with FIN, with RST, or half-closed first."""
    way = chance.choice(["fin", "rst", "half"])
    if way == "rst":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif way == "half":
        connection.shutdown(socket.SHUT_WR)
    connection.close()


def test_five_hundred_clients_killed_at_random_leak_nothing() -> None:
    """BB-051, G5."""
    chance = random.Random(4)
    model = scripted_model(*ENDLESS)
    with live_server(model) as server:
        for stream in (False, True):  # the first stream of all leaves a task, which looks for the end of the server
            httpx.post(f"{server.url}/v1/chat/completions", json={**CHAT, "max_tokens": 1, "stream": stream})
        before = held(server)
        open_now: list[socket.socket] = []
        for _ in range(500):
            body = {**CHAT, "stream": chance.random() < 0.7, "n": chance.choice([1, 1, 1, 3])}
            raw = raw_request(body)
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
            connection.sendall(raw[: chance.choice([len(raw), len(raw), len(raw), chance.randrange(len(raw))])])
            open_now.append(connection)
            if len(open_now) > 24:
                kill(open_now.pop(chance.randrange(len(open_now))), chance)
            if chance.random() < 0.2:
                time.sleep(chance.random() * 0.01)
        for connection in open_now:
            kill(connection, chance)
        assert eventually(
            lambda: (
                model.service.running == 0 and all(now <= then for now, then in zip(held(server), before, strict=True))
            )
        )
        assert len(model.service.aborted) > 300
        answer = httpx.post(f"{server.url}/v1/chat/completions", json={**CHAT, "max_tokens": 2})
        metrics = httpx.get(f"{server.url}/metrics").text
    assert answer.json()["choices"][0]["message"]["content"] == "xx"
    assert "octavo_requests_open 0.0" in metrics
