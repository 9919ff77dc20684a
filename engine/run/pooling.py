"""From the final hidden states of a text's tokens to its embedding, one vector of unit length."""

import math
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineFaultError
from engine.weights.files.weights_file import WeightsFile


class Pooling(StrEnum):
    """Which hidden states make the vector."""

    MEAN = "mean"  # of all tokens
    CLS = "cls"  # the first token's
    LAST = "last"  # the last token's


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
