"""uvicorn's HTTP protocol with bounds on what it reads, and errors of the wire in the shape of all others.

The parser of requests: httptools', to which offers to upgrade and fields behind a body mean nothing.

httptools ends a message with its head where the client offers another protocol (`Connection: Upgrade` and `Upgrade`),
and takes what follows for a new request: a body would be run as one. This server takes no such offer, and an offer
that is not taken is ignored (RFC 9110, 7.8).
"""

import asyncio
from enum import Enum
from http import HTTPStatus
from typing import Any, Protocol

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from server.wire.http_writes import JoinedWrites, StreamedBody, turn_of
from server.wire.json_text import encoded


class Target(Protocol):
    """Who hears of requests: the names are httptools', the attributes uvicorn's."""

    url: bytes
    headers: list[tuple[bytes, bytes]]

    def on_message_begin(self) -> None: ...

    def on_url(self, url: bytes) -> None: ...

    def on_header(self, name: bytes, value: bytes) -> None: ...

    def on_headers_complete(self) -> None: ...

    def on_body(self, body: bytes) -> None: ...

    def on_message_complete(self) -> None: ...

    def on_chunk_header(self) -> None: ...


class RequestParser:
    """Has the methods of httptools.HttpRequestParser that uvicorn uses.

    Where httptools stops behind a head, a new parser is told the same head without the offer, and then the rest.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._is_within_head = False  # fields behind a body are not headers: they come too late to be judged
        self._is_retold = False  # the target has heard of this head already
        self._parser = httptools.HttpRequestParser(self)

    def feed_data(self, data: bytes) -> None:
        """Parse the next bytes of the connection; raises httptools.HttpParserError."""
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                data = data[offer.args[0] :]
                self._retell_head()
            else:
                return

    def _retell_head(self) -> None:
        line = b"%b %b HTTP/%b" % (self.get_method(), self._target.url, self.get_http_version().encode())
        kept = [b"%b: %b" % field for field in self._target.headers if field[0].lower() != b"upgrade"]
        self._parser = httptools.HttpRequestParser(self)
        self._is_retold = True
        self._parser.feed_data(b"\r\n".join((line, *kept, b"", b"")))

    def close(self) -> None:
        """Let go of the parser underneath, which refers to this one."""
        del self._parser

    def get_method(self) -> bytes:
        return self._parser.get_method()

    def get_http_version(self) -> str:
        return self._parser.get_http_version()

    def should_keep_alive(self) -> bool:
        return self._parser.should_keep_alive()

    def should_upgrade(self) -> bool:
        return False

    # What httptools calls.

    def on_message_begin(self) -> None:
        self._is_within_head = True
        if not self._is_retold:
            self._target.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._is_retold:
            self._target.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_within_head and not self._is_retold:
            self._target.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.get_method() == b"CONNECT":
            raise ValueError("a tunnel through this server")  # there is no end to what it would be sent
        if not self._parser.should_upgrade():
            self._is_within_head = self._is_retold = False
            self._target.on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._target.on_body(body)

    def on_chunk_header(self) -> None:
        self._target.on_chunk_header()

    def on_message_complete(self) -> None:
        if not self._parser.should_upgrade():
            self._target.on_message_complete()


MAX_HEAD_BYTES = 64 * 1024  # request line and headers; fields behind a body, and what chunks say of themselves
CHUNK_BYTES = 20  # of a chunk that says no more than its size: sixteen digits, and two ends of lines
HEAD_SECONDS = 30.0  # for a head to arrive
REST_SECONDS = 30.0  # for the rest of a body to arrive, when its request has been answered


class Reading(Enum):
    """Which part of a request comes next."""

    NOTHING = 0  # no request has begun
    HEAD = 1
    BODY = 2  # that of the request of self.cycle


class BoundedProtocol(HttpToolsProtocol):
    """The parser underneath keeps a head of any size, for any time, until it is complete."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.parser: RequestParser = RequestParser(self)  # type: ignore[assignment]
        self._reading = Reading.NOTHING
        self._begun = 0  # requests
        self._head_bytes = 0  # of the request that is being read: all that is not its content
        self._content_bytes = 0  # of all requests
        self._complaint = "This is not a valid HTTP request."
        self._head_timer: asyncio.TimerHandle | None = None
        self._rest_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_complete()
        self._rest_is_complete()
        self.parser.close()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        begun, content = self._begun, self._content_bytes
        most_begun = 1 if self._reading is Reading.NOTHING else 0
        super().data_received(data)
        if self.transport.is_closing():
            return
        # Where one request ends and another begins within this data, the other is counted from the next on.
        if self._begun - begun <= most_begun:
            self._count_head(len(data) - (self._content_bytes - content))
        self._keep_alive()

    def _count_head(self, nbytes: int) -> None:
        self._head_bytes += max(0, nbytes)
        if self._head_bytes > MAX_HEAD_BYTES:
            message = f"The request's headers are larger than the {MAX_HEAD_BYTES} bytes that this server reads."
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message, "headers_too_large")

    def _keep_alive(self) -> None:
        """uvicorn counts the time without a request from an answer on, and stops at the first byte thereafter."""
        is_idle = self._reading is Reading.NOTHING and self.cycle is not None and self.cycle.response_complete
        if is_idle and self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun += 1
        self._reading = Reading.HEAD
        self._await_head()

    def on_headers_complete(self) -> None:
        self._head_is_complete()
        self._check_host()
        before = self.cycle
        super().on_headers_complete()
        self._reading = Reading.BODY
        if self.cycle is not before:
            self._join_writes(self.cycle)

    def _check_host(self) -> None:
        """RFC 9112, 3.2."""
        count = sum(name == b"host" for name, _ in self.headers)
        if count > 1 or (count == 0 and self.parser.get_http_version() == "1.1"):
            self._complaint = f"A request of HTTP/1.1 has one Host header, and this one has {count or 'none'}."
            raise ValueError(self._complaint)

    def on_chunk_header(self) -> None:
        self._content_bytes += CHUNK_BYTES

    def on_body(self, body: bytes) -> None:
        self._content_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._reading = Reading.NOTHING
        self._rest_is_complete()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        is_early = self._reading is Reading.BODY and self.cycle.response_complete
        if is_early and not self.transport.is_closing():
            self._rest_timer = self.loop.call_later(REST_SECONDS, self.transport.close)

    def _join_writes(self, cycle: RequestResponseCycle) -> None:
        writes = JoinedWrites(self.transport, turn_of(self.loop))

        def on_response() -> None:
            writes.flush()
            self.on_response_complete()

        cycle.transport = writes  # type: ignore[assignment]
        cycle.on_response = on_response
        cycle.scope["octavo.body"] = StreamedBody(cycle, self.flow)  # type: ignore[typeddict-unknown-key]

    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST, self._complaint, "invalid_http")

    def _await_head(self) -> None:
        self._head_bytes = 0
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._give_up_head)

    def _head_is_complete(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _rest_is_complete(self) -> None:
        if self._rest_timer is not None:
            self._rest_timer.cancel()
            self._rest_timer = None

    def _give_up_head(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def _refuse(self, status: HTTPStatus, message: str, code: str) -> None:
        """Read no further: answer with an error where the client would take it for the answer to what is at fault."""
        cycle = self.cycle
        is_answered = cycle is None or cycle.response_complete
        is_within_body = self._reading is Reading.BODY
        if is_within_body and (is_answered or cycle.response_started or self.pipeline):
            self.transport.close()
        elif is_within_body or is_answered:
            self._send_error(status, message, code)
            self.transport.close()
        else:
            cycle.keep_alive = False  # the requests before the one at fault get their answers

    def _send_error(self, status: HTTPStatus, message: str, code: str) -> None:
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
        body = encoded({"error": error})
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
