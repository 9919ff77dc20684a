"""Bodies that do not come: each ends in time, and all together hold bounded memory."""

import asyncio
import socket
import time
from collections.abc import Iterator

import orjson
import pytest
from starlette.types import Message, Receive

from server.errors import BodyTooLargeError, ClientGoneError, RequestTimeoutError, UploadsFullError
from server.routes import ENDPOINTS
from server.settings import ServingOptions
from server.wire import body
from server.wire.body import Body, BodyIntake
from tests.server.harness import CHAT, LiveServer, live_server
from tests.server.scripted.engine import scripted_model
from tests.server.wire.test_http_protocol import all_received

SECONDS = 0.4  # that a body may stall
WORKING = [path for row in ENDPOINTS if row.body for path in (row.path, row.path.removeprefix("/v1"))]


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server(scripted_model("x"), ServingOptions(drain_seconds=0, body_seconds=SECONDS)) as running:
        yield running


def connected(server: LiveServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def head(framing: str, path: str = "/v1/chat/completions") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{framing}\r\n\r\n".encode()


def assert_timed_out(answer: bytes, path: str = "/v1/chat/completions") -> None:
    top, _, body = answer.partition(b"\r\n\r\n")
    assert top.startswith(b"HTTP/1.1 408 ") and b"connection: close" in top.lower()
    error = orjson.loads(body)["error"]
    assert f"{SECONDS:g} s" in error["message"]
    is_anthropic = path.removeprefix("/v1").startswith("/messages")
    assert error.get("code") == (None if is_anthropic else "request_timeout")


@pytest.mark.parametrize("path", WORKING)
def test_a_body_that_stalls_is_a_408_on_every_route(server: LiveServer, path: str) -> None:
    with connected(server) as declared, connected(server) as chunked, connected(server) as silent:
        declared.sendall(head("Content-Length: 100", path) + b"{")
        chunked.sendall(head("Transfer-Encoding: chunked", path) + b"2\r\n{}\r\n")
        silent.sendall(head("Content-Length: 100", path))
        for connection in (declared, chunked, silent):
            assert_timed_out(all_received(connection), path)


def test_a_body_that_dribbles_is_a_408(server: LiveServer) -> None:
    with connected(server) as connection:
        connection.sendall(head("Content-Length: 10000"))
        received = b""
        connection.settimeout(0.02)
        while not received:
            connection.sendall(b"{")
            try:
                received = connection.recv(65536)
            except TimeoutError:
                continue
        assert_timed_out(received)


def test_a_client_that_was_called_for_its_body_and_sends_none_is_told_too(server: LiveServer) -> None:
    with connected(server) as connection:
        connection.sendall(head("Content-Length: 100\r\nExpect: 100-continue"))
        answer = all_received(connection)
    called, _, refusal = answer.partition(b"\r\n\r\n")
    assert called == b"HTTP/1.1 100 Continue"
    assert_timed_out(refusal)


def test_a_slow_body_of_an_honest_client_is_read(server: LiveServer) -> None:
    body = orjson.dumps({**CHAT, "user": "u" * 8000})
    with connected(server) as connection:
        connection.sendall(head(f"Content-Length: {len(body)}\r\nConnection: close"))
        for start in range(0, len(body), 500):
            time.sleep(SECONDS / 6)  # in all, more than twice as long as a body may stall
            connection.sendall(body[start : start + 500])
        assert all_received(connection).startswith(b"HTTP/1.1 200 ")


def test_what_is_accepted_is_asked_whether_it_is_still_there(server: LiveServer) -> None:
    with connected(server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        accepted = [one.transport.get_extra_info("socket") for one in server.http.server_state.connections]
        assert accepted
        assert all(one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1 for one in accepted)
        assert all(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60 for one in accepted)


class Upload:
    """A client's side of one body."""

    def __init__(self, *pieces: bytes) -> None:
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        for piece in pieces:
            self.send(piece)

    def send(self, piece: bytes, *, ends: bool = False) -> None:
        self._messages.put_nowait({"type": "http.request", "body": piece, "more_body": not ends})

    def leave(self) -> None:
        self._messages.put_nowait({"type": "http.disconnect"})

    @property
    def receive(self) -> Receive:
        return self._messages.get


async def test_a_whole_body_is_handed_over_and_counted_until_it_is_released() -> None:
    intake = BodyIntake(100, 30.0)
    upload = Upload(b"ab", b"cd")
    upload.send(b"e", ends=True)
    body = await intake.read(upload.receive)
    assert (body.take(), body.take(), intake.memory.held_bytes) == (b"abcde", b"", 5)
    body.release()
    body.release()
    assert intake.memory.held_bytes == 0


@pytest.mark.parametrize(
    ("upload", "fault"),
    [
        (lambda: Upload(b"a" * 101), BodyTooLargeError),
        (lambda: Upload(b"a"), RequestTimeoutError),
        (lambda: left(b"a"), ClientGoneError),
    ],
)
async def test_a_body_that_fails_leaves_no_memory_counted(upload: type[Upload], fault: type[Exception]) -> None:
    intake = BodyIntake(100, 0.05)
    with pytest.raises(fault):
        await intake.read(upload().receive)
    assert intake.memory.held_bytes == 0


def left(piece: bytes) -> Upload:
    upload = Upload(piece)
    upload.leave()
    return upload


@pytest.fixture
def no_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "SHORT_RESERVE", 0)


@pytest.mark.usefixtures("no_reserve")
async def test_where_bodies_fill_the_memory_the_largest_unfinished_one_is_given_up() -> None:
    intake = BodyIntake(100, 30.0, most_held=250)
    uploads = [Upload(b"a" * size) for size in (90, 95, 60)]
    small = Upload(b"s")
    reading = [asyncio.create_task(intake.read(one.receive)) for one in (*uploads, small)]
    await asyncio.sleep(0.01)
    assert intake.memory.held_bytes == 246
    small.send(b"s" * 5)
    uploads[0].send(b"", ends=True)
    uploads[2].send(b"", ends=True)
    small.send(b"", ends=True)
    bodies = await asyncio.gather(*reading, return_exceptions=True)
    assert [type(one) for one in bodies] == [Body, UploadsFullError, Body, Body]
    assert intake.memory.held_bytes == 90 + 60 + 6


@pytest.mark.usefixtures("no_reserve")
async def test_a_body_that_is_itself_the_largest_is_refused_and_whole_ones_stay() -> None:
    intake = BodyIntake(100, 30.0, most_held=150)
    whole = Upload()
    whole.send(b"w" * 100, ends=True)
    kept = await intake.read(whole.receive)
    with pytest.raises(UploadsFullError):
        await intake.read(Upload(b"a" * 51).receive)
    assert (len(kept.take()), intake.memory.held_bytes) == (100, 100)


async def test_large_bodies_that_wait_leave_room_for_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "SHORT_RESERVE", 20)
    monkeypatch.setattr(body, "SHORT_BYTES", 10)
    intake = BodyIntake(100, 30.0, most_held=100)
    large, *short = Upload(), Upload(), Upload(), Upload()
    large.send(b"w" * 100, ends=True)
    for upload in short:
        upload.send(b"s" * 8, ends=True)
    await intake.read(large.receive)
    assert [(await intake.read(upload.receive)).nbytes for upload in short[:2]] == [8, 8]
    with pytest.raises(UploadsFullError):
        await intake.read(short[2].receive)
    with pytest.raises(UploadsFullError):
        await intake.read(Upload(b"t" * 11).receive)
