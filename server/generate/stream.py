"""An answer on the wire: a stream with keep-alive comments, or one whole reply; a client that leaves aborts it.

A stream has a task of its own, but a token seldom needs it: it is written as the engine delivers it, where nothing has
to be waited for. What cannot be written at once waits for the task, as do the beginning and the end of the answer.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

from sse_starlette import EventSourceResponse
from sse_starlette.sse import SendTimeoutError
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from engine.api.request import TextEvent
from server.errors import ClientGoneError
from server.generate.answer import Json
from server.generate.answer_stream import AnswerStream
from server.generate.reply import PING, Reply
from server.settings import ServingOptions
from server.wire.http_writes import StreamedBody
from server.wire.json_text import json_answer
from server.wire.wire_error import wire_error

T = TypeVar("T")


async def whole_reply(http: HttpRequest, answer: AnswerStream, reply: Reply, headers: Mapping[str, str]) -> Response:
    """The JSON of the complete answer, unless the client leaves before."""
    try:
        content = await unless_client_leaves(http.receive, _collected(answer, reply))
    except Exception as error:
        answer.note_failure(error)
        raise
    finally:
        answer.close()
    return json_answer(content, headers=headers)


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
    """SSE that does not fall silent. Whatever ends it, also before its first byte, closes the answer."""

    def __init__(
        self,
        answer: AnswerStream,
        reply: Reply,
        options: ServingOptions,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(
            self._frames(),
            headers={**headers, "Cache-Control": "no-cache"},
            ping=0,  # sse-starlette's own come at each interval, however much is told
            data_sender_callable=self._fill_silences if options.ping_seconds else None,
            send_timeout=options.send_timeout_seconds,
            sep="\n",
        )
        self._answer = answer
        self._reply = reply
        self._ping_seconds = options.ping_seconds
        self._told = time.monotonic()  # when something was last told
        self._body: StreamedBody | None = None
        self._send: Send

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._body = scope.get("octavo.body")
        self._send = scope.get("octavo.send", send)
        if self._body is not None:
            self._answer.listen(partial(self._write_at_once, self._body))
        try:
            await super().__call__(scope, receive, self._by_the_short_way(send))
        except SendTimeoutError:
            self._answer.log.end = "stalled"
        finally:
            self._answer.close()

    def _by_the_short_way(self, send: Send) -> Send:
        """Only the head goes through the layers around the routes: they do nothing with bodies, each costs a call."""

        async def send_message(message: Message) -> None:
            self._told = time.monotonic()
            await (send if message["type"] == "http.response.start" else self._send)(message)

        return send_message

    def _write_at_once(self, body: StreamedBody, text: TextEvent) -> bool:
        """Say what _frames would say of it; False where the client is slow, and somebody has to wait for it."""
        if not body.is_free:
            return False
        if frame := self._reply.add(self._answer.read(0, text)):
            body.write(frame)
            self._told = time.monotonic()
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

    async def _fill_silences(self) -> None:
        """Say something wherever nothing has been told for a while. It ends with the stream."""
        while True:
            await asyncio.sleep(self._told + self._ping_seconds - time.monotonic())
            if time.monotonic() - self._told >= self._ping_seconds:
                self._told = time.monotonic()
                await self._ping_once()

    async def _ping_once(self) -> None:
        if self._body is None:
            await self._send({"type": "http.response.body", "body": self._reply.ping(), "more_body": True})
        elif self._body.is_free:  # else its client has not yet read what was told
            self._body.write(self._reply.ping())
