"""The seam between the engine's loop and what computes logits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

MAX_KEPT_ROWS = 8  # rows of one sequence in a step that keeps its states
NO_BLOCK = -1  # in a block table: positions that no row of the sequence sees any more


@dataclass(frozen=True, slots=True)
class KvGroup:
    """Layers that share block tables. Block numbers are a group's own: 0 .. n_blocks - 1."""

    n_blocks: int
    block_bytes: int  # keys and values of one block, in all layers of the group
    window: int = 0  # positions that a row sees, its own among them; 0: all


class SequenceRows(NamedTuple):
    """The rows that one sequence contributes to a step."""

    tokens: Sequence[int]  # fed at absolute positions position, position + 1, ...
    position: int
    block_tables: Sequence[Sequence[int]]  # of each group: block i holds positions i * block_tokens onwards
    logit_rows: int  # number of trailing rows that need logits
    final_rows: range = range(0)  # rows whose final hidden state is needed, counted from the first of these rows
    state_slot: int = 0  # where the sequence's state is, if the model has layers with state
    keep_states: bool = False  # the rows may be taken back by `rewind`: MAX_KEPT_ROWS at most


class HasLikeliest(Protocol):
    """What gives logits."""

    @property
    def likeliest(self) -> list[int]:
        """Of each row of the last run's logits, the lowest id of the largest; -1 if no logit is above -inf."""


class DraftModel(HasLikeliest, Protocol):
    """A model's own draft block. It is called from the runner's thread, between runs of the runner."""

    def run(self, batch: Sequence[SequenceRows], states: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return float32 [logit rows, vocab_size], a view valid until the next run of the draft.

        states: float32 [rows, width], the final state at each row's position, of the trunk or of the draft itself.
        tokens: of the position after, so that logits are of the position after that.
        """

    @property
    def final(self) -> NDArray[np.float32]:
        """The last run's final states, as final_rows asked for: float32 [rows, width]."""


class ModelRunner(HasLikeliest, Protocol):
    """Turns the rows of a step into logits. Called from one thread only.

    A model whose layers keep state beside keys and values keeps the state of each sequence in a slot, of any kind and
    of fixed size. Rows that begin at position 0 begin with an empty state, whatever the slot holds; other rows go on
    from the slot's state. A run leaves the state after its last row in the slot.
    """

    block_tokens: int
    groups: tuple[KvGroup, ...]  # of the attention layers
    state_slots: int  # 0: no layer keeps state
    state_bytes: int  # of one slot
    max_rows: int
    max_logit_rows: int  # of a step
    context_length: int
    vocab_size: int

    def run(self, batch: Sequence[SequenceRows], meanwhile: Callable[[], None] | None = None) -> NDArray[np.float32]:
        """Return float32 [logit rows, vocab_size] in batch order; a view valid until the next run.

        `meanwhile` is called while other threads compute. It must not use what this step computes.
        """

    @property
    def final(self) -> NDArray[np.float32]:
        """The last run's normalized hidden states, as final_rows asked for: float32 [rows, width], in batch order.

        A view valid until the next run.
        """

    @property
    def draft(self) -> DraftModel | None:
        """The model's own draft block, if it has one."""

    def rewind(self, slot: int, rows: int) -> None:
        """Put back the state after the first `rows` rows of the slot's last step, which kept its states.

        It may be called again with fewer rows, until the slot's next step. Where no layer keeps state there is
        nothing to do.
        """

    def copy_state(self, source: int, target: int) -> None:
        """Copy a slot's state to another slot, bit by bit."""

    def read_block(self, group: int, block: int) -> bytes:
        """What a block holds, block_bytes of it, for a cache that outlives the runner."""

    def write_block(self, group: int, block: int, data: bytes) -> None:
        """Put back what read_block gave, of the same model file, KV type and version."""

    def read_state(self, slot: int) -> bytes:
        """What a slot holds, state_bytes of it."""

    def write_state(self, slot: int, data: bytes) -> None:
        """Put back what read_state gave."""

    def close(self) -> None:
        """Release threads and memory; no run may follow."""
