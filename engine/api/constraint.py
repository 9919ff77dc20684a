"""The seam between the engine's loop and what limits an answer's tokens: a grammar that was compiled before."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Matcher(Protocol):
    """One answer's place in its grammar. Called from the engine's thread only."""

    def mask(self) -> NDArray[np.int32]:
        """The tokens that may come next: bit i % 32 of word i // 32 is token i, int32 [ceil(vocab / 32)].

        End tokens are allowed exactly where the answer may end. A view valid until the next call.
        """
        ...

    def accept(self, token: int) -> None:
        """Go on by a token that the mask allows."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether nothing but an end token may follow."""
        ...


class Constraint(Protocol):
    """A compiled grammar; immutable, shared by requests."""

    def start(self) -> Matcher:
        """Begin at the grammar's start."""
        ...
