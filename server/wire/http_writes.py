"""How answers are written: head and body as one packet, and what many streams have to say in a turn together.

This file and http_protocol.py know uvicorn's request cycle, which is no public interface: uvicorn's version is capped.
A token that is written past the cycle takes 61 us of the event loop's core, and 86 us through the cycle (medians of six
loads of 8 streams).
"""

import asyncio
from functools import lru_cache

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

CONTINUE = b"HTTP/1.1 100 "  # no answer yet, but a call for the request's body
# Pieces, and bytes of one, that are not kept until a turn of the event loop ends.
MOST_PARTS = 16
MUCH_BYTES = 16 * 1024


class WriteTurn:
    """What one turn of the event loop writes, to all connections: sent together at its end.

    A step of the engine has a token for each stream. Each write wakes a reader on this machine, which then takes
    the core away from the next write. All tokens at once wake the reader once.
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
        """Write all that waits, also a head without a body."""
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
def turn_of(loop: asyncio.AbstractEventLoop) -> WriteTurn:
    """What this event loop's connections write through."""
    return WriteTurn(loop)
