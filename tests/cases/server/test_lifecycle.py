"""Area lifecycle: a client that leaves is soon forgotten, whatever its request was doing."""

import random
import socket
import time

import pytest

from tests.cases.real import CHAT_PATH, HI, Json, RealServer
from tests.server.wire.test_disconnect import eventually, kill, raw_request

LONG: list[Json] = [{"role": "user", "content": "hello world, " * 200}]  # some 2,000 tokens: many steps of prefill
ENDLESS: Json = {"ignore_eos": True, "max_tokens": 4000}
REQUESTS: dict[str, Json] = {
    "stream": {"messages": HI, "stream": True, **ENDLESS},
    "whole": {"messages": HI, **ENDLESS},
    "prefill": {"messages": LONG, "max_tokens": 1},
    "prefill of a stream": {"messages": LONG, "stream": True, "max_tokens": 1},
    "several": {"messages": HI, "n": 4, "stream": True, **ENDLESS},
    "under a grammar": {"messages": HI, "regex": "[ab]*", "min_tokens": 3900, "max_tokens": 4000, "stream": True},
}


def begin(server: RealServer, body: Json) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.live.port), timeout=10)
    connection.sendall(raw_request({"model": server.model.id, **body}))
    return connection


def open_requests(server: RealServer) -> float:
    lines = server.http.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith("octavo_requests_open ")).split()[-1])


def comes_to_rest(server: RealServer) -> bool:
    """Whether nothing is held any more, for a while: a request may still be on its way when its client has left."""

    def is_at_rest() -> bool:
        return server.is_idle() and open_requests(server) == 0

    return eventually(lambda: all(is_at_rest() for _ in range(10)))


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("seed", range(3))
def test_a_client_that_leaves_frees_its_lane_and_memory(calls: RealServer, name: str, seed: int) -> None:
    """BB-051: the lane stays busy up to max_tokens; by FIN and by RST, streamed, whole, and during prefill."""
    chance = random.Random(seed)
    with begin(calls, REQUESTS[name]) as connection:
        if "prefill" not in name:
            assert eventually(lambda: any(slot["is_processing"] for slot in calls.http.get("/slots").json()))
        time.sleep(chance.random() * 0.03)
        kill(connection, chance)
    assert comes_to_rest(calls)
    assert calls.chat(max_tokens=1)["usage"]["completion_tokens"] == 1


def test_two_hundred_that_leave_at_any_moment_leave_nothing(calls: RealServer) -> None:
    """BB-051: and those who stay get the answer that they get alone."""
    chance = random.Random(51)
    fields: Json = {"messages": HI, "temperature": 0, "max_tokens": 60, "ignore_eos": True}
    alone = calls.chat(**fields)["choices"]
    leaving: list[socket.socket] = []
    for number in range(200):
        leaving.append(begin(calls, REQUESTS[chance.choice([*REQUESTS])]))
        if len(leaving) > 12:
            kill(leaving.pop(chance.randrange(len(leaving))), chance)
        if number % 50 == 25:
            assert calls.post(CHAT_PATH, fields).json()["choices"] == alone
    for connection in leaving:
        kill(connection, chance)
    assert comes_to_rest(calls)
    assert calls.chat(**fields)["choices"] == alone
