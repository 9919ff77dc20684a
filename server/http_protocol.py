"""uvicorn's HTTP parser with bounds on a request's head, and errors of the wire in the shape of all others."""

import asyncio
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import orjson
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

MAX_HEAD_BYTES = 64 * 1024  # request line and headers
CONTINUE = b"HTTP/1.1 100 "  # no answer yet, but a call for the request's body
HEAD_SECONDS = 30.0  # for a head to arrive
# Pieces, and bytes of one, that are not kept until a turn of the event loop ends.
MOST_PARTS = 16
MUCH_BYTES = 16 * 1024


class WriteTurn:
    """What one turn of the event loop writes, to all connections: sent together at its end.

    A step of the engine has a token for each stream. A reader on this machine who is woken by each of them takes the
    core away from whoever writes the next; he is woken once, if they come at once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[asyncio.Transport, list[bytes]] = {}

    def add(self, transport: asyncio.Transport, data: bytes) -> None:
        """Write to a transport when this turn ends, or now if it is much: a transport tells of slow readers."""
        if not self._waiting:
            self._loop.call_soon(self.send)
        parts = self._waiting.setdefault(transport, [])
        parts.append(data)
        if len(parts) >= MOST_PARTS or len(data) >= MUCH_BYTES:
            self.send_to(transport)

    def send(self) -> None:
        """Write all that waits, now."""
        waiting, self._waiting = self._waiting, {}
        for transport, parts in waiting.items():
            if not transport.is_closing():
                transport.write(b"".join(parts))

    def send_to(self, transport: asyncio.Transport) -> None:
        """Write what waits for one transport, now."""
        parts = self._waiting.pop(transport, [])
        if parts and not transport.is_closing():
            transport.write(b"".join(parts))


class JoinedWrites:
    """What a cycle of uvicorn writes to: an answer's head waits for its body, so that both are one packet."""

    def __init__(self, transport: asyncio.Transport, turn: WriteTurn) -> None:
        self._transport = transport
        self._turn = turn
        self._head: bytes | None = None
        self._is_begun = False

    def write(self, data: bytes) -> None:
        if self._is_begun or data.startswith(CONTINUE):
            self._turn.add(self._transport, data if self._head is None else self._head + data)
            self._head = None
        else:
            self._head, self._is_begun = data, True

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def flush(self) -> None:
        """Write all that waits, be it a head that no body follows."""
        if self._head is not None:
            self.write(b"")
        self._turn.send_to(self._transport)

    def close(self) -> None:
        self.flush()
        self._transport.close()


class StreamedBody:
    """Past ASGI, whose `send` may wait and so needs a task: writes pieces of an answer's body that need not wait."""

    def __init__(self, cycle: RequestResponseCycle, flow: FlowControl) -> None:
        self._cycle = cycle
        self._flow = flow

    @property
    def is_free(self) -> bool:
        """Whether the cycle's `send` would write a piece now: its head is sent, and its client is there and reads."""
        cycle = self._cycle
        return bool(cycle.chunked_encoding) and not (
            self._flow.write_paused or cycle.disconnected or cycle.response_complete
        )

    def write(self, piece: bytes) -> None:
        """Write a piece of the body, which is free and goes on, as the cycle's `send` does."""
        self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))


@lru_cache(1)
def _turn_of(loop: asyncio.AbstractEventLoop) -> WriteTurn:
    return WriteTurn(loop)


class BoundedProtocol(HttpToolsProtocol):
    """The parser underneath keeps a head of any size, for any time, until it is complete."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_complete()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        awaited = self._head_timer
        super().data_received(data)
        # A head that began within this data is counted from the next on: a body may lie before it.
        if awaited is not None and self._head_timer is awaited and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                message = f"The request's headers are larger than the {MAX_HEAD_BYTES} bytes that this server reads."
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message, "headers_too_large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        self._head_is_complete()
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self._join_writes(self.cycle)

    def _join_writes(self, cycle: RequestResponseCycle) -> None:
        writes = JoinedWrites(self.transport, _turn_of(self.loop))

        def on_response() -> None:
            writes.flush()
            self.on_response_complete()

        cycle.transport = writes  # type: ignore[assignment]
        cycle.on_response = on_response
        cycle.scope["octavo.body"] = StreamedBody(cycle, self.flow)  # type: ignore[typeddict-unknown-key]

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.close()  # an answer is on its way: nothing can be said within it
        else:
            self._refuse(HTTPStatus.BAD_REQUEST, "This is not a valid HTTP request.", "invalid_http")

    def _await_head(self) -> None:
        self._head_bytes = 0
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _head_is_complete(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: HTTPStatus, message: str, code: str) -> None:
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
        body = orjson.dumps({"error": error})
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
