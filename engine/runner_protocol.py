"""The seam between the engine's loop and what computes logits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SequenceRows:
    """The rows that one sequence contributes to a step."""

    tokens: Sequence[int]  # fed at absolute positions position, position + 1, ...
    position: int
    block_table: Sequence[int]  # block i holds keys and values of positions i * block_tokens onwards
    wants_logits: bool  # of the last row


class ModelRunner(Protocol):
    """Turns the rows of a step into logits. Called from one thread only."""

    block_tokens: int
    n_blocks: int
    max_rows: int
    context_length: int
    vocab_size: int

    def run(self, batch: Sequence[SequenceRows]) -> NDArray[np.float32]:
        """Return float32 [sequences that want logits, vocab_size] in batch order; a view valid until the next run."""

    def close(self) -> None:
        """Release threads and memory; no run may follow."""
