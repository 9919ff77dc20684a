"""How a server ends: new requests hear 503, running ones finish, the rest hear why."""

import asyncio
import gc
import socket
import threading
import warnings
from typing import Any

import httpx
import orjson
import pytest

from server.settings import ServingOptions
from server.wire import lifecycle
from server.wire.http_protocol import BoundedProtocol
from tests.server.harness import CHAT, LiveServer, live_server
from tests.server.scripted.engine import Step, scripted_model
from tests.server.wire.test_disconnect import ENDLESS, eventually, send_request


class Caller(threading.Thread):
    """One request in the background."""

    def __init__(self, server: LiveServer, *, stream: bool) -> None:
        super().__init__()
        self.url = f"{server.url}/v1/chat/completions"
        self.stream = stream
        self.answer: Any = None

    def run(self) -> None:
        self.answer = httpx.post(self.url, json={**CHAT, "stream": self.stream}, timeout=30)


def start_callers(server: LiveServer, count: int) -> list[Caller]:
    callers = [Caller(server, stream=index % 2 == 0) for index in range(count)]
    for caller in callers:
        caller.start()
    assert eventually(lambda: server.model.service.running == count)
    return callers


def test_running_requests_finish_and_new_ones_are_refused() -> None:
    gate = asyncio.Event()
    steps: list[Step] = ["a", gate, "b"]
    with live_server(scripted_model(*steps), ServingOptions(drain_seconds=30)) as server:
        callers = start_callers(server, 8)
        server.request_exit()
        assert eventually(lambda: httpx.get(f"{server.url}/health").status_code == 503)
        refused = httpx.post(f"{server.url}/v1/chat/completions", json=CHAT)
        ready = httpx.get(f"{server.url}/ready")
        server.loop.call_soon_threadsafe(gate.set)
        for caller in callers:
            caller.join()
    assert (refused.status_code, refused.headers["connection"]) == (503, "close")
    assert (ready.status_code, ready.json()["status"]) == (503, "draining")
    for caller in callers:
        assert caller.answer.status_code == 200
        assert '"b"' in caller.answer.text if caller.stream else '"ab"' in caller.answer.text
        assert caller.answer.text.endswith("data: [DONE]\n\n") or not caller.stream


def test_what_outlasts_the_drain_is_told_so() -> None:
    with live_server(scripted_model(*ENDLESS), ServingOptions(drain_seconds=0.2)) as server:
        callers = start_callers(server, 4)
        server.request_exit()
        for caller in callers:
            caller.join()
    for caller in callers:
        if caller.stream:
            *_, error, done, rest = caller.answer.text.split("\n\n")
            assert (done, rest) == ("data: [DONE]", "")
            assert orjson.loads(error.removeprefix("data: "))["error"]["code"] == "not_ready"
        else:
            assert caller.answer.status_code == 503


def test_an_idle_server_has_no_timers() -> None:
    with live_server(scripted_model("x")) as server:
        httpx.post(f"{server.url}/v1/chat/completions", json={**CHAT, "stream": True})
        assert eventually(lambda: pending_timers(server) == 0)


def pending_timers(server: LiveServer) -> int:
    async def count() -> int:
        timers = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
        return sum(not timer.cancelled() for timer in timers)

    return asyncio.run_coroutine_threadsafe(count(), server.loop).result(timeout=10)


def test_who_does_not_read_its_last_bytes_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """An open transport would be left to the collector, and its client to a timeout."""
    monkeypatch.setattr(lifecycle, "FLUSH_SECONDS", 0.1)
    with live_server(scripted_model(*["x" * 100_000] * 1000), ServingOptions(drain_seconds=0)) as server:
        connection = send_request(server.port, {**CHAT, "stream": True})
        assert eventually(lambda: bool(server.http.server_state.connections))
        (open_one,) = server.http.server_state.connections
        assert isinstance(open_one, BoundedProtocol) and eventually(lambda: open_one.flow.write_paused)
        server.request_exit()
        server.thread.join(timeout=30)
        assert open_one.transport.is_closing() and not server.http.server_state.connections
        connection.close()


def test_who_is_accepted_as_the_server_closes_leaves_no_socket_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its transport was made after the close, which failed; the socket stayed open until the collector came."""
    late: list[socket.socket] = []
    with live_server(scripted_model("a")) as server, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        stop = server.http._serving.stop

        async def stop_and_let_one_in() -> None:
            await stop()
            if late:  # the application's own end stops it again
                return
            late.append(socket.create_connection(("127.0.0.1", server.port), timeout=10))
            for _ in range(2):  # the listener is seen to be readable in the first turn, and accepts in the second
                await asyncio.sleep(0)

        monkeypatch.setattr(server.http._serving, "stop", stop_and_let_one_in)
        server.stop()
        gc.collect()
    with late[0] as connection:
        assert connection.recv(1) == b""
    assert not [warning.message for warning in warned if warning.category is ResourceWarning]
