"""One request's events as an async iterator; what a slow reader has not fetched yet is joined, never dropped."""

import asyncio
from collections.abc import Callable
from types import TracebackType

from engine.errors import OctavoError
from engine.request import Event, FinishEvent, TextEvent


class EventStream:
    """Yields events until the FinishEvent, or raises our fault. Leaving it early aborts the request.

    Belongs to the event loop's thread, and to one reader. An aborted stream just ends.
    """

    def __init__(self, request_abort: Callable[[], None]) -> None:
        self._request_abort = request_abort
        self._texts: list[TextEvent] = []
        self._end: FinishEvent | OctavoError | None = None
        self._closed = False
        self._arrival: asyncio.Future[None] | None = None  # that the reader waits for

    def deliver(self, item: Event | OctavoError) -> None:
        """Take the engine's next event, or the error that ends the stream."""
        if self._closed:
            return
        if isinstance(item, TextEvent):
            self._texts.append(item)
        else:
            self._end = item
        self._wake_reader()

    def abort(self) -> None:
        """End the stream now; the engine frees the request's lane within one step."""
        if self._closed:
            return
        if self._end is None:
            self._request_abort()
        self._close()
        self._texts = []

    async def aclose(self) -> None:
        self.abort()

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> Event:
        while not (self._texts or self._end or self._closed):
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        if self._texts:
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
        texts, self._texts = self._texts, []
        if len(texts) == 1:
            return texts[0]
        return TextEvent(tuple(token for text in texts for token in text.tokens))

    def _close(self) -> None:
        self._closed = True
        self._end = None
        self._wake_reader()

    def _wake_reader(self) -> None:
        if self._arrival is not None:
            if not self._arrival.done():  # cancelled, where the reader was
                self._arrival.set_result(None)
            self._arrival = None
