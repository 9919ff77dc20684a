"""An answer on the wire: a stream with keep-alive comments, or one whole reply; a client that leaves aborts it.

A stream has a task of its own, but a token seldom needs it: it is written as the engine delivers it, where nothing has
to be waited for. What cannot be written at once waits for the task, as do the beginning and the end of the answer.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

import orjson
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from engine.api.request import TextEvent
from server.errors import ClientGoneError
from server.generate.answer import Json
from server.generate.answer_stream import AnswerStream
from server.generate.reply import Reply
from server.settings import ServingOptions
from server.wire.http_writes import StreamedBody
from server.wire.wire_error import wire_error

T = TypeVar("T")

PING = b": ping\n\n"
KEEP_ALIVE = ServerSentEvent(comment="ping", sep="\n")


async def whole_reply(http: HttpRequest, answer: AnswerStream, reply: Reply, headers: Mapping[str, str]) -> Response:
    """The JSON of the complete answer, unless the client leaves before."""
    try:
        content = await unless_client_leaves(http.receive, _collected(answer, reply))
    except Exception as error:
        answer.note_failure(error)
        raise
    finally:
        answer.close()
    return Response(orjson.dumps(content), headers=dict(headers), media_type="application/json")


async def _collected(answer: AnswerStream, reply: Reply) -> Json:
    async for update in answer.updates():
        reply.add(update)
    return reply.whole()


async def unless_client_leaves(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
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
    """SSE with keep-alive comments. Whatever ends it, also before its first byte, closes the answer."""

    def __init__(
        self,
        answer: AnswerStream,
        reply: Reply,
        options: ServingOptions,
        headers: Mapping[str, str],
        ping: ServerSentEvent = KEEP_ALIVE,
    ) -> None:
        super().__init__(
            self._frames(),
            headers={**headers, "Cache-Control": "no-cache"},
            ping=options.ping_seconds,
            ping_message_factory=lambda: ping,
            send_timeout=options.send_timeout_seconds,
            sep="\n",
        )
        self._answer = answer
        self._reply = reply

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body: StreamedBody | None = scope.get("octavo.body")
        if body is not None:
            self._answer.listen(partial(self._write_at_once, body))
        try:
            await super().__call__(scope, receive, _by_the_short_way(scope, send))
        except SendTimeoutError:
            self._answer.log.end = "stalled"
        finally:
            self._answer.close()

    def _write_at_once(self, body: StreamedBody, text: TextEvent) -> bool:
        """Say what _frames would say of it; False where the client is slow, and somebody has to wait for it."""
        if not body.is_free:
            return False
        if frame := self._reply.add(self._answer.read(0, text)):
            body.write(frame)
        return True

    async def _frames(self) -> AsyncIterator[bytes]:
        """Everything except the tokens that are written at once. A first comment tells that the request is admitted."""
        yield PING
        try:
            if start := self._reply.start():
                yield start
            async for update in self._answer.updates():
                if frame := self._reply.add(update):
                    yield frame
            if end := self._reply.end():
                yield end
        except Exception as error:  # the status line is out: what goes wrong now can only be told in the stream
            self._answer.note_failure(error)
            yield self._reply.failed(wire_error(error))


def _by_the_short_way(scope: Scope, send: Send) -> Send:
    """Only the head goes through the layers around the routes: they do nothing with bodies, and each costs a call."""
    send_body: Send = scope.get("octavo.send", send)

    async def send_message(message: Message) -> None:
        await (send if message["type"] == "http.response.start" else send_body)(message)

    return send_message
