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
    every_row: bool = False  # logits of all rows, not of the last alone
    final_rows: range = range(0)  # rows, counted from the first of these, whose final hidden state is wanted

    @property
    def logit_rows(self) -> int:
        """How many of the last of these rows logits are wanted of."""
        return len(self.tokens) if self.every_row else int(self.wants_logits)


class ModelRunner(Protocol):
    """Turns the rows of a step into logits. Called from one thread only."""

    block_tokens: int
    n_blocks: int
    max_rows: int
    max_logit_rows: int  # of a step
    context_length: int
    vocab_size: int

    def run(self, batch: Sequence[SequenceRows]) -> NDArray[np.float32]:
        """Return float32 [rows that logits are wanted of, vocab_size] in order; a view valid until the next run."""

    @property
    def final(self) -> NDArray[np.float32]:
        """The last run's normalized hidden states, as final_rows asked for: float32 [rows, width], in batch order.

        A view valid until the next run.
        """

    def close(self) -> None:
        """Release threads and memory; no run may follow."""
