"""One request's events as an async iterator; what a slow reader has not fetched yet is joined, never dropped."""

import asyncio
from collections.abc import Callable
from types import TracebackType

from engine.errors import OctavoError
from engine.request import Event, FinishEvent, TextEvent, Token


class EventStream:
    """Yields events until the FinishEvent, or raises our fault. Leaving it early aborts the request.

    Belongs to the event loop's thread. An aborted stream just ends.
    """

    def __init__(self, request_abort: Callable[[], None]) -> None:
        self._request_abort = request_abort
        self._tokens: list[Token] = []
        self._end: FinishEvent | OctavoError | None = None
        self._closed = False
        self._arrived = asyncio.Event()  # set while __anext__ need not wait

    def deliver(self, item: Event | OctavoError) -> None:
        """Take the engine's next event, or the error that ends the stream."""
        if self._closed:
            return
        if isinstance(item, TextEvent):
            self._tokens += item.tokens
        else:
            self._end = item
        self._arrived.set()

    def abort(self) -> None:
        """End the stream now; the engine frees the request's lane within one step."""
        if self._closed:
            return
        if self._end is None:
            self._request_abort()
        self._close()
        self._tokens = []

    async def aclose(self) -> None:
        self.abort()

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> Event:
        await self._arrived.wait()
        if self._tokens:
            return self._take_text()
        end = self._end
        self._close()
        if end is None:
            raise StopAsyncIteration
        if isinstance(end, OctavoError):
            raise end
        return end

    async def __aenter__(self) -> "EventStream":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.abort()

    def _take_text(self) -> TextEvent:
        event = TextEvent(tuple(self._tokens))
        self._tokens = []
        if self._end is None:
            self._arrived.clear()
        return event

    def _close(self) -> None:
        self._closed = True
        self._end = None
        self._arrived.set()
