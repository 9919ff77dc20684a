"""Bytes that are no HTTP, or too much of it: real sockets, answers in our shape, and never a 500."""

import asyncio
import socket
from collections.abc import Iterator

import httpx
import orjson
import pytest

from server.wire import http_protocol, lifecycle
from server.wire.http_protocol import MAX_HEAD_BYTES
from server.wire.http_writes import JoinedWrites, WriteTurn
from tests.server.harness import CHAT, LiveServer, live_server
from tests.server.scripted.engine import scripted_model

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server(scripted_model("x")) as running:
        yield running


def said(server: LiveServer, raw: bytes) -> tuple[int, dict[str, object]]:
    """The status and the error that answer these bytes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(raw)
        answer = all_received(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower()
    error: dict[str, object] = orjson.loads(body)["error"]
    return int(head.split()[1]), error


def all_received(connection: socket.socket) -> bytes:
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GARBAGE\r\n\r\n",
        b"get / http/1.1\r\n\r\n",
        b"FROBNICATE / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nBad\x00Name: x\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\nhello\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello",
    ],
)
def test_what_is_no_http_is_a_400_in_our_shape(server: LiveServer, raw: bytes) -> None:
    status, error = said(server, raw)
    assert (status, error["code"]) == (400, "invalid_http")
    assert httpx.get(f"{server.url}/health").status_code == 200


@pytest.mark.parametrize(
    "piece",
    [
        b"GET /" + b"a" * 200_000,
        b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 50_000,
    ],
)
def test_a_head_without_end_is_cut_off(server: LiveServer, piece: bytes) -> None:
    """The parser keeps all of it, so that only the count bounds it."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        answer = b""
        try:
            for start in range(0, len(piece), 1000):
                connection.sendall(piece[start : start + 1000])
            answer = all_received(connection)
        except OSError:
            return  # closed while we were still sending
    assert b"431 Request Header Fields Too Large" in answer and b"headers_too_large" in answer


def test_large_heads_within_the_bound_and_large_bodies_are_read(server: LiveServer) -> None:
    headers = {"X-Large": "a" * (MAX_HEAD_BYTES - 1000)}
    with httpx.Client() as client:
        for _ in range(3):
            body = {**CHAT, "user": "u" * 300_000}
            answer = client.post(f"{server.url}/v1/chat/completions", json=body, headers=headers)
            assert answer.status_code == 200


def test_a_head_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.05)
    with live_server(scripted_model("x")) as server:
        for raw in (b"", b"GET /health HTT"):
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
                connection.sendall(raw)
                assert all_received(connection) == b""


def test_one_connection_serves_many_requests(server: LiveServer) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(request * 9 + last)
        assert all_received(connection).count(b"HTTP/1.1 200 OK") == 10


class Wire(asyncio.Transport):
    """Remembers what was written to it at once."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


async def test_head_and_body_are_one_write_and_what_follows_is_not_held() -> None:
    wire = Wire()
    joined = JoinedWrites(wire, WriteTurn(asyncio.get_running_loop()))
    for piece in (b"HTTP/1.1 100 Continue\r\n\r\n", b"head ", b"first", b"second"):
        joined.write(piece)
        await asyncio.sleep(0)
    assert wire.writes == [b"HTTP/1.1 100 Continue\r\n\r\n", b"head first", b"second"]


async def test_what_is_written_in_one_turn_goes_out_at_its_end_in_order_and_connection_by_connection() -> None:
    turn = WriteTurn(asyncio.get_running_loop())
    wires = [Wire(), Wire()]
    joined = [JoinedWrites(wire, turn) for wire in wires]
    for piece in (b"head ", b"one ", b"two"):
        for each in joined:
            each.write(piece)
    assert [wire.writes for wire in wires] == [[], []]
    await asyncio.sleep(0)
    assert [wire.writes for wire in wires] == [[b"head one two"]] * 2


async def test_an_answers_end_does_not_wait_for_the_turns() -> None:
    wire, other = Wire(), Wire()
    turn = WriteTurn(asyncio.get_running_loop())
    ending, kept = JoinedWrites(wire, turn), JoinedWrites(other, turn)
    for piece in (b"head ", b"end"):
        ending.write(piece)
        kept.write(piece)
    ending.flush()
    assert (wire.writes, other.writes) == ([b"head end"], [])
    other.close()  # by whoever, before the turn ends: then there is nobody to write to
    await asyncio.sleep(0)
    assert (wire.writes, other.writes) == ([b"head end"], [])


async def test_a_head_without_a_body_is_written_before_the_end() -> None:
    wire = Wire()
    joined = JoinedWrites(wire, WriteTurn(asyncio.get_running_loop()))
    joined.write(b"head")
    assert wire.writes == []
    joined.close()
    assert (wire.writes, wire.closed) == ([b"head"], True)


def test_heads_without_bodies_are_answered_in_order_on_one_connection(server: LiveServer) -> None:
    request = b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(2 * (request + b"\r\n") + request + b"Connection: close\r\n\r\n")
        answer = all_received(connection)
    assert answer.count(b"HTTP/1.1 ") == 3 and answer.endswith(b"\r\n\r\n")


def test_a_client_that_waits_for_a_call_gets_it_before_it_sends_its_body(server: LiveServer) -> None:
    body = orjson.dumps(CHAT)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        length = f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
        connection.sendall(HEAD + length.encode())
        assert connection.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert all_received(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.0\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    ],
)
def test_a_request_names_one_host(server: LiveServer, raw: bytes) -> None:
    status, error = said(server, raw)
    assert (status, error["code"]) == (400, "invalid_http")
    assert "one Host header" in str(error["message"])


def test_a_request_of_the_first_version_needs_no_host(server: LiveServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert all_received(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "flood",
    [
        b"2\r\n{}\r\n0\r\n" + b"a: b\r\n" * 50_000,
        b"2;" + b"a" * 200_000,
        b"1;aaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n{\r\n" * 9000,
    ],
    ids=["fields behind the body", "an extension", "many extensions"],
)
def test_what_a_chunked_body_says_of_itself_is_bounded_as_its_head_is(server: LiveServer, flood: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        answer = b""
        try:
            connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            for start in range(0, len(flood), 1000):
                connection.sendall(flood[start : start + 1000])
            answer = all_received(connection)
        except ConnectionError:
            return  # closed while we were still sending
    assert b"headers_too_large" in answer


def test_many_small_chunks_are_a_body_like_any_other(server: LiveServer) -> None:
    body = orjson.dumps({**CHAT, "user": "u" * 30_000})
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
        for start in range(0, len(chunks), 20_000):
            connection.sendall(chunks[start : start + 20_000])
        assert all_received(connection).startswith(b"HTTP/1.1 200 ")


def test_the_rest_of_a_body_that_nobody_waits_for_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "REST_SECONDS", 0.05)
    with live_server(scripted_model("x")) as server, connected(server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n1234")
        assert all_received(connection).startswith(b"HTTP/1.1 200 ")  # and it is closed


@pytest.mark.parametrize("late", [b"5", b"5\r\n"])
def test_a_connection_that_has_been_answered_is_not_kept_for_ever(late: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes behind an answer and begins no request."""
    monkeypatch.setattr(lifecycle, "KEEP_ALIVE_SECONDS", 0.2)
    with live_server(scripted_model("x")) as server, connected(server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n1234")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(late)
        assert all_received(connection) == b""


def connected(server: LiveServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)
