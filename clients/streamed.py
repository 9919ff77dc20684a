"""Asks for a streamed answer, and notes when each piece of it came."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import orjson

from clients.client import ApiError
from clients.exchange import Address, Exchange

_DATA = b"data: "
_END = b"\n\n"  # of an event


@dataclass(slots=True)
class Streamed:
    """One answer as it comes; times are those of time.perf_counter, in seconds."""

    sent: float = 0.0
    ended: float | None = None  # None: not yet, or never
    times: list[float] = field(default_factory=list)  # of each piece that had text
    pieces: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    timings: Mapping[str, Any] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None  # within the stream

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def first_token_seconds(self) -> float | None:
        return self.times[0] - self.sent if self.times else None

    @property
    def gaps(self) -> list[float]:
        """Seconds between two pieces that follow each other."""
        return [after - before for before, after in pairwise(self.times)]

    @property
    def prompt_tokens(self) -> int:
        return int(self.usage.get("prompt_tokens", 0))

    @property
    def cached_tokens(self) -> int:
        return int((self.usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)

    @property
    def output_tokens(self) -> int:
        """Those that the server counted; where it did not come to that, the pieces."""
        return int(self.usage.get("completion_tokens", len(self.pieces)))

    def note(self, chunk: Mapping[str, Any], moment: float) -> None:
        """Take in a chunk that came at a moment."""
        for choice in chunk.get("choices", ()):
            text = choice.get("text") or choice.get("delta", {}).get("content")
            if text:
                self.times.append(moment)
                self.pieces.append(text)
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self.usage = chunk.get("usage") or self.usage
        self.timings = chunk.get("timings") or self.timings
        self.error = chunk.get("error") or self.error


async def ask(
    address: Address, path: str, body: Mapping[str, object], answer: Streamed, *, read_later: bool = False
) -> Exchange:
    """Stream the answer to `body` into `answer`, and return the exchange that is over.

    `read_later`: only the time of each event is taken when it comes, and what it says is read when all are there. Who
    measures a server on the same cores takes less of them so.

    Raises ApiError where the server refuses or breaks off with an error, OSError where the connection does. Cancelling
    closes the connection.
    """
    body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    rest = bytearray()  # of the body, since the last event
    unread: list[tuple[bytes, float]] = []

    def read() -> None:
        for event, moment in unread:
            answer.note(orjson.loads(event), moment)
        unread.clear()

    def on_body(part: bytes) -> None:
        rest.extend(part)
        if exchange.status == 200:
            moment = time.perf_counter()
            unread.extend([(event, moment) for event in _taken_events(rest)])
            if not read_later:
                read()

    exchange = await Exchange.open(address, on_body)
    try:
        answer.sent = time.perf_counter()
        exchange.send(address.post(path, body))
        await exchange.wait()
    finally:
        exchange.close()
        read()
    answer.ended = time.perf_counter()
    if exchange.status != 200:
        raise _refusal(exchange.status, bytes(rest))
    if answer.error is not None:
        raise ApiError(200, answer.error)
    return exchange


def _taken_events(body: bytearray) -> list[bytes]:
    """Take the data of the events that are complete out of the body; comments and [DONE] are no news."""
    end = body.rfind(_END)
    if end < 0:
        return []
    events = bytes(body[:end]).split(_END)
    del body[: end + len(_END)]
    return [event[len(_DATA) :] for event in events if event.startswith(_DATA + b"{")]


def _refusal(status: int, body: bytes) -> ApiError:
    try:
        return ApiError(status, orjson.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return ApiError(status, {"message": f"HTTP {status}: {body[:200].decode(errors='replace')}"})
