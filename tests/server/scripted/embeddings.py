"""Embeddings of the scripted engine: a vector is a function of its tokens, and comes when it is told to."""

import asyncio
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineNotReadyError
from engine.run.embedding import unit_length

EMBEDDING_SIZE = 16


def scripted_vector(tokens: Sequence[int]) -> NDArray[np.float32]:
    rng = np.random.default_rng(zlib.crc32(np.array(list(tokens), np.int64).tobytes()))
    return unit_length(rng.normal(0, 1, EMBEDDING_SIZE))


class ScriptedEmbeddings:
    """One call's vectors, after a gate or instead of a fault."""

    def __init__(self, texts: Sequence[Sequence[int]], gate: asyncio.Event | None, fault: Exception | None) -> None:
        self._texts = texts
        self._gate = gate
        self._fault = fault
        self._aborted = asyncio.Event()
        self.is_complete = False

    @property
    def was_aborted(self) -> bool:
        """Whether its reader left before the end."""
        return self._aborted.is_set() and not self.is_complete

    async def vectors(self) -> list[NDArray[np.float32]]:
        if self._fault is not None:
            raise self._fault
        if self._gate is not None:
            waits = [asyncio.ensure_future(event.wait()) for event in (self._gate, self._aborted)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
        if self._aborted.is_set():
            raise EngineNotReadyError("The server stopped before these embeddings were complete.")
        self.is_complete = True
        return [scripted_vector(text) for text in self._texts]

    def abort(self) -> None:
        self._aborted.set()
