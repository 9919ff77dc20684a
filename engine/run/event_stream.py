"""One request's events as an async iterator. Texts that a slow reader has not fetched are joined, never dropped.

A listener may take texts in place of a waiting reader: that wakes no task.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType

from engine.api.request import Event, FinishEvent, TextEvent
from engine.errors import OctavoError


class EventStream:
    """Yields events until the FinishEvent, or raises our fault. Leaving it early aborts the request.

    Belongs to the event loop's thread, and to one reader. An aborted stream just ends.
    """

    def __init__(self, request_abort: Callable[[], None]) -> None:
        self._request_abort = request_abort
        self._texts: list[TextEvent] = []
        self._end: FinishEvent | Exception | None = None
        self._listener: Callable[[TextEvent], bool] | None = None
        self._closed = False
        self._arrival: asyncio.Future[None] | None = None  # that the reader waits for

    def deliver(self, item: Event | OctavoError) -> None:
        """Take the engine's next event, or the error that ends the stream."""
        if self._closed or self._end is not None:
            return
        if isinstance(item, TextEvent):
            if self._listener is not None and self._arrival is not None and self._is_heard(item):
                return
            self._texts.append(item)
        else:
            self._end = item
        self._wake_reader()

    def listen(self, listener: Callable[[TextEvent], bool]) -> None:
        """While the reader waits, offer each text to `listener` first; a text that it refuses (False) wakes the reader.

        While the reader is busy with earlier events, texts are kept for the reader. A fault of the listener aborts the
        request and is raised to the reader.
        """
        self._listener = listener

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
        if isinstance(end, Exception):
            raise end
        return end

    async def __aenter__(self) -> "EventStream":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.abort()

    def _is_heard(self, text: TextEvent) -> bool:
        """Whether the listener has taken it, or failed with it."""
        assert self._listener is not None
        try:
            return self._listener(text)
        except Exception as error:  # not raised here: the caller has other streams to serve
            self._request_abort()
            self._end = error
            self._wake_reader()
            return True

    def _take_text(self) -> TextEvent:
        texts, self._texts = self._texts, []
        if len(texts) == 1:
            return texts[0]
        return TextEvent(tuple(token for text in texts for token in text.tokens))

    def _close(self) -> None:
        self._closed = True
        self._end = None
        self._listener = None  # the listener may refer to the stream's owner
        self._wake_reader()

    def _wake_reader(self) -> None:
        if self._arrival is not None:
            if not self._arrival.done():  # cancelled, where the reader was
                self._arrival.set_result(None)
            self._arrival = None
