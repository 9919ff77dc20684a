"""An offer of another protocol is ignored: a body behind it is read as the body that it is, and never as a request."""

import asyncio
import socket
import time
from collections.abc import Iterator

import orjson
import pytest

from server.settings import ServingOptions
from server.wire.http_protocol import RequestParser
from tests.fuzz.bodies import BODIES
from tests.server.harness import CHAT, LiveServer, live_server
from tests.server.scripted.engine import scripted_model
from tests.server.wire.test_http_protocol import all_received

KEY = "sesame"
OFFERS = {
    "Java's client": b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\nUpgrade: h2c\r\n",
    "h2c": b"Upgrade: h2c\r\nConnection: Upgrade\r\n",
    "websocket": b"connection: keep-alive, upgrade\r\nupgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    "several": b"Connection: upgrade\r\nUpgrade: TLS/1.0, foo/2\r\nUpgrade: h2c\r\n",
    "without Connection": b"Upgrade: h2c\r\n",
    "behind Expect": b"Expect: 100-continue\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n",
}
HIDDEN = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sesame\r\n\r\n"
LAST = b"HEAD /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
CHAT_PATH = "/v1/chat/completions"
EVERY_PATH_AND_EVERY_OFFER = [
    *((path, OFFERS["h2c"]) for path in sorted({*BODIES, *(path.removeprefix("/v1") for path in BODIES)})),
    *((CHAT_PATH, offer) for offer in OFFERS.values()),
]


@pytest.fixture(scope="module", params=["no key", "keys"])
def server(request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    keys = (KEY,) if request.param == "keys" else ()
    with live_server(scripted_model("x"), ServingOptions(drain_seconds=0, api_keys=keys)) as running:
        yield running


def head(offer: bytes, length: int | None, path: str = CHAT_PATH, method: str = "POST") -> bytes:
    framing = b"Transfer-Encoding: chunked" if length is None else b"Content-Length: %d" % length
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n".encode()
        + offer
        + b"Content-Type: application/json\r\n"
        + framing
        + b"\r\n\r\n"
    )


def statuses(server: LiveServer, *pieces: bytes) -> list[int]:
    """The status of each answer but calls for a body; each piece is a packet of its own."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            connection.sendall(piece)
            if len(pieces) < 10:
                time.sleep(0.01)
        answer = all_received(connection)
    found = [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]
    return [status for status in found if status != 100]


def chunked(body: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:9], body[9:], b""))


@pytest.mark.parametrize(("path", "offer"), EVERY_PATH_AND_EVERY_OFFER)
def test_the_body_behind_an_offer_is_read(server: LiveServer, path: str, offer: bytes) -> None:
    """NB-02: of whatever length, in one packet or in two; and the next request on the connection is answered."""
    body = orjson.dumps((BODIES.get(path) or BODIES[f"/v1{path}"])[0])
    plain = statuses(server, head(b"", len(body), path), body, LAST)
    assert len(plain) == 2
    assert statuses(server, head(offer, len(body), path) + body + LAST) == plain
    assert statuses(server, head(offer, len(body), path), body + LAST) == plain
    assert statuses(server, head(offer, None, path), chunked(body) + LAST) == plain


@pytest.mark.parametrize(("path", "offer"), EVERY_PATH_AND_EVERY_OFFER)
def test_a_request_within_a_body_is_never_answered(server: LiveServer, path: str, offer: bytes) -> None:
    """NB-02."""
    for body in (HIDDEN * 2, b"\r\n" + HIDDEN):
        for framed in (head(offer, len(body), path), body), (head(offer, None, path), chunked(body)):
            for pieces in ((b"".join(framed) + LAST,), (framed[0], framed[1] + LAST), (*framed, LAST)):
                first, *rest = statuses(server, *pieces)
                assert 400 <= first < 500
                assert rest == [200]  # that of LAST, which has no body to be taken for more


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
def test_it_does_not_matter_how_the_bytes_are_cut(server: LiveServer, offer: bytes) -> None:
    body = orjson.dumps(CHAT)
    whole = head(offer, len(body)) + body + head(offer, None) + chunked(HIDDEN) + LAST
    assert statuses(server, *(whole[place : place + 1] for place in range(len(whole)))) == [200, 400, 200]


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
def test_requests_around_an_offer_on_one_connection_are_answered_in_order(server: LiveServer, offer: bytes) -> None:
    body = orjson.dumps(CHAT)
    get = head(offer, 0, "/v1/models", "GET")
    get_with_body = head(offer, len(HIDDEN), "/v1/nothing", "GET") + HIDDEN
    raw = head(b"", len(body)) + body + get + get_with_body + head(offer, len(body)) + body + LAST
    assert statuses(server, raw) == [200, 200, 404, 200, 200]


@pytest.mark.parametrize(
    "raw",
    [
        b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        head(b"Connection: close\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n", None) + b"ZZ\r\n",
        head(OFFERS["h2c"] + b"Content-Length: 5\r\n", None) + b"hello",
    ],
)
def test_what_follows_a_request_without_an_end_is_not_answered(server: LiveServer, raw: bytes) -> None:
    for pieces in ((raw + HIDDEN + LAST,), (raw, HIDDEN, LAST)):
        try:
            assert statuses(server, *pieces) == [400]
        except ConnectionError:  # closed by the server before all was sent
            continue


def test_a_fault_behind_a_request_does_not_take_its_answer(server: LiveServer) -> None:
    body = orjson.dumps(CHAT)
    assert statuses(server, head(b"", len(body)) + body + b"NONSENSE\r\n\r\n" + HIDDEN) == [200]


def test_what_follows_the_last_request_of_a_connection_is_not_answered(server: LiveServer) -> None:
    body = orjson.dumps(CHAT)
    for offer in (b"", OFFERS["h2c"]):
        assert statuses(server, head(b"Connection: close\r\n" + offer, len(body)) + body + HIDDEN) == [200]


def test_a_field_behind_the_body_is_no_header(server: LiveServer) -> None:
    raw = (
        b"POST /v1/tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\nContent-Type: application/json\r\nAuthorization: Bearer sesame\r\nHost: evil.example\r\n\r\n"
    )
    asked = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    has_keys = statuses(server, asked) == [401]
    assert statuses(server, raw + LAST) == [401 if has_keys else 415, 200]


class Heard:
    """Remembers what a parser tells."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.told: list[object] = []

    def on_message_begin(self) -> None:
        self.url, self.headers = b"", []

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.told.append((self.url, dict(self.headers)))

    def on_body(self, body: bytes) -> None:
        self.told.append(body)

    def on_chunk_header(self) -> None:
        pass

    def on_message_complete(self) -> None:
        self.told.append("end")


async def test_a_head_is_told_once_and_the_methods_speak_of_the_request_that_was_told() -> None:
    heard = Heard()
    parser = RequestParser(heard)
    await asyncio.sleep(0)
    parser.feed_data(b"PUT /a HTTP/1.0\r\nA: b\r\nUpgrade: x\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nhi")
    assert heard.told == [
        (b"/a", {b"a": b"b", b"upgrade": b"x", b"connection": b"Upgrade", b"content-length": b"2"}),
        b"hi",
        "end",
    ]
    assert (parser.get_method(), parser.get_http_version(), parser.should_keep_alive()) == (b"PUT", "1.0", False)
    assert not parser.should_upgrade()
