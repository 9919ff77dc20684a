"""Embeddings: from the final hidden states of a text to one vector of unit length, and the vectors of several texts.

Each text waits, runs and ends like any other request, a bounded number of texts at a time.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from engine.api.request import FinishEvent, Pooling, Request
from engine.errors import EngineFaultError, EngineNotReadyError
from engine.run.event_stream import EventStream
from engine.weights.files.weights_file import WeightsFile

# GGUF's numbers. 0 is "none": a vector a token, which no client of the embeddings API reads; the model is then taken
# for what it is without pooling, a causal one, whose last token alone has seen the whole text. 4 ranks documents.
_BY_NUMBER = {0: Pooling.LAST, 1: Pooling.MEAN, 2: Pooling.CLS, 3: Pooling.LAST}


def pooling_of(file: WeightsFile) -> Pooling | None:
    """Return how the file says that its model makes embeddings; None where it makes none."""
    number = file.metadata.get(f"{file.architecture}.pooling_type", 0)
    return _BY_NUMBER.get(number) if isinstance(number, int) else None


class Pooler:
    """Takes the hidden states of one text as they are computed; the cut into steps changes no bit of the vector."""

    def __init__(self, pooling: Pooling, tokens: int) -> None:
        self._pooling = pooling
        self._tokens = tokens
        self._sum: NDArray[np.float64] | None = None

    def wanted(self, position: int, count: int) -> range:
        """Tell which of the tokens position, position + 1, ... are needed, counted from the first of them."""
        match self._pooling:
            case Pooling.MEAN:
                return range(count)
            case Pooling.CLS:
                return range(1 if position == 0 else 0)
            case Pooling.LAST:
                return range(count - 1, count) if position + count == self._tokens else range(0)

    def push(self, rows: NDArray[np.float32]) -> None:
        """Take the next wanted hidden states, float32 [tokens, width]; sums run token by token in float64 (law 3)."""
        for row in rows:
            self._sum = row.astype(np.float64) if self._sum is None else self._sum + row

    def vector(self) -> NDArray[np.float32]:
        """Return the embedding, scaled to unit length: the scale takes in the mean's division."""
        assert self._sum is not None
        return unit_length(self._sum)


def unit_length(vector: NDArray[np.floating]) -> NDArray[np.float32]:
    """Scale a vector to the length of 1, which is summed exactly; zeros stay zeros."""
    wide = vector.astype(np.float64)
    length = math.sqrt(math.fsum(wide * wide))
    if not math.isfinite(length):
        raise EngineFaultError("The model gave hidden states that are not numbers; its file may be damaged.")
    return (wide / (length or 1.0)).astype(np.float32)


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
