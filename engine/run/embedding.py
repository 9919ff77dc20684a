"""The embeddings of several texts: each waits, runs and ends like any other request, a bounded number at a time."""

from collections import deque
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineNotReadyError
from engine.request import FinishEvent, Request
from engine.run.event_stream import EventStream


class Embeddings:
    """Vectors on their way, in the order of their texts. Whoever leaves early must abort; belongs to the event loop."""

    def __init__(self, requests: Iterable[Request], enqueue: Callable[[Request], EventStream | None]) -> None:
        """`enqueue` returns None where the engine takes no more."""
        self._enqueue = enqueue
        self._waiting = deque(requests)
        self._streams: list[EventStream] = []

    def queue_next(self) -> None:
        """Queue one text more, if one is left."""
        stream = self._enqueue(self._waiting[0]) if self._waiting else None
        if stream is not None:
            self._streams.append(stream)
            self._waiting.popleft()

    async def vectors(self) -> list[NDArray[np.float32]]:
        """Wait for all of them; raises the error that ended the first text to fail."""
        results: list[NDArray[np.float32]] = []
        while len(results) < len(self._streams):
            results.append(await _vector(self._streams[len(results)]))
        if self._waiting:
            raise _stopped()
        return results

    def abort(self) -> None:
        """End what has not ended; the engine frees its lanes within one step."""
        self._waiting.clear()
        for stream in self._streams:
            stream.abort()


async def _vector(stream: EventStream) -> NDArray[np.float32]:
    async for event in stream:
        if isinstance(event, FinishEvent) and event.embedding is not None:
            return event.embedding
    raise _stopped()


def _stopped() -> EngineNotReadyError:
    return EngineNotReadyError("The server stopped before these embeddings were complete.")
