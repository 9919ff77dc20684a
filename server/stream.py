"""The engine's events -> SSE chunks or one whole reply; a client that leaves aborts its request."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.errors import EngineNotReadyError
from engine.request import FinishEvent, FinishReason, TextEvent
from server.errors import ClientGoneError, wire_error
from server.logs import RequestLog
from server.replies import Identity, Json, Shape, timings, usage
from server.served import EventStream
from server.serving import ServingOptions

logger = logging.getLogger("octavo.server")

T = TypeVar("T")

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One admitted request on its way to its client."""

    events: EventStream
    identity: Identity
    shape: Shape
    log: RequestLog
    headers: Mapping[str, str]

    def close(self) -> None:
        """Give the lane back, whatever the reason, and write the log line."""
        self.events.abort()
        self.log.write()

    async def finished_events(self) -> AsyncIterator[TextEvent | FinishEvent]:
        """The events up to a real finish; raises EngineNotReadyError if the engine stopped before it."""
        async for event in self.events:
            if isinstance(event, TextEvent):
                self.log.note_tokens(len(event.token_ids))
            elif event.reason is FinishReason.ABORT:
                break
            yield event
            if isinstance(event, FinishEvent):
                self.log.end = event.reason.value
                return
        raise EngineNotReadyError("The server stopped before this answer was complete.")

    def note_failure(self, error: Exception) -> None:
        stopped = isinstance(error, EngineNotReadyError)
        self.log.end = "stopped" if stopped else "error"
        if not stopped:
            logger.error("%s failed", self.identity.id, exc_info=error)


async def whole_reply(request: HttpRequest, exchange: Exchange) -> Response:
    try:
        reply = await _unless_client_leaves(request.receive, _collect(exchange))
    finally:
        exchange.close()
    return Response(orjson.dumps(reply), headers=dict(exchange.headers), media_type="application/json")


async def _collect(exchange: Exchange) -> Json:
    pieces: list[str] = []
    try:
        async for event in exchange.finished_events():
            if isinstance(event, TextEvent):
                pieces.append(event.text)
            else:
                finish = event
    except Exception as error:
        exchange.note_failure(error)
        raise
    choice = exchange.shape.whole("".join(pieces), finish.reason.value)
    reply = exchange.identity.envelope(exchange.shape.whole_object, [choice])
    return {**reply, "usage": usage(finish), "timings": timings(finish)}


async def _unless_client_leaves(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, or ClientGoneError as soon as the connection closes: whichever comes first."""
    answer = asyncio.ensure_future(work)
    departure = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({answer, departure}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientGoneError("The client closed the connection.")
        return answer.result()
    finally:
        answer.cancel()
        departure.cancel()
        await asyncio.gather(answer, departure, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class StreamedReply(EventSourceResponse):
    """SSE with keep-alive comments. Whatever ends it, also before its first byte, closes the exchange."""

    def __init__(self, exchange: Exchange, options: ServingOptions, *, include_usage: bool) -> None:
        super().__init__(
            sse_chunks(exchange, include_usage=include_usage),
            headers={**exchange.headers, "Cache-Control": "no-cache"},
            ping=options.ping_seconds,
            ping_message_factory=lambda: ServerSentEvent(comment="ping", sep="\n"),
            send_timeout=options.send_timeout_seconds,
            sep="\n",
        )
        self._exchange = exchange

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            self._exchange.log.end = "stalled"
        finally:
            self._exchange.close()

    async def _listen_for_exit_signal_with_grace(self) -> None:
        # The base class polls for the end of uvicorn and then cuts the stream. The drain is ours.
        await asyncio.get_running_loop().create_future()


async def sse_chunks(exchange: Exchange, *, include_usage: bool) -> AsyncIterator[bytes]:
    """The whole stream, from the comment that says the request is admitted to [DONE]."""
    yield PING
    try:
        async for chunk in _chunks(exchange, include_usage):
            yield b"data: " + orjson.dumps(chunk) + b"\n\n"
    except Exception as error:  # the status line is out: what goes wrong now can only be told in the stream
        exchange.note_failure(error)
        yield b"data: " + orjson.dumps(wire_error(error).body()) + b"\n\n"
    yield DONE


async def _chunks(exchange: Exchange, include_usage: bool) -> AsyncIterator[Json]:
    shape = exchange.shape
    no_usage: Json = {"usage": None} if include_usage else {}

    def chunk(*choices: Json) -> Json:
        return exchange.identity.envelope(shape.chunk_object, list(choices))

    opening = shape.opening()
    async for event in exchange.finished_events():
        if opening is not None:
            yield chunk(opening) | no_usage
            opening = None
        if isinstance(event, FinishEvent):
            figures = {"timings": timings(event)}
            closing = chunk(shape.closing(event.reason.value))
            yield closing | (no_usage if include_usage else figures)
            if include_usage:
                yield chunk() | {"usage": usage(event)} | figures
        elif event.text:
            yield chunk(shape.piece(event.text)) | no_usage
