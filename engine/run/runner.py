"""Turns a step's rows into logits: fills the step record, looks up embeddings, runs the program."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.emit.recurrent_state import RecurrentState
from engine.emit.run_state import Capacity
from engine.families.family import Built
from engine.run.draft_runner import DraftRunner
from engine.run.runner_protocol import KvGroup, SequenceRows
from engine.run.step_inputs import fill_step
from kernels.attention.kv_cache import BLOCK_TOKENS
from kernels.run.team import Team


class Runner:
    """One loaded model on one team of threads. Called from one thread only."""

    def __init__(self, built: Built, capacity: Capacity, vocab_size: int) -> None:
        program, state, embed, draft, _ = built
        self._program, self._state = program, state
        # For the ledger, which times the look-up and the ops; `op_times` as Team.run fills it.
        self.embed, self.op_names = embed, program.names
        self.op_times: NDArray[np.int64] | None = None
        self._team = Team(capacity.threads)
        self.block_tokens = BLOCK_TOKENS
        self.groups = tuple(
            KvGroup(group.n_blocks, sum(block.nbytes for block in group.arrays_of(0)), group.window)
            for group in state.attention.groups
        )
        self.state_slots = len(state.recurrent.states) if state.recurrent else 0
        self.state_bytes = state.recurrent.states[0].nbytes if state.recurrent else 0
        self.max_rows = capacity.max_rows
        self.max_logit_rows = capacity.max_logit_rows
        self.threads = capacity.threads
        self.context_length = capacity.context_length
        self.vocab_size = vocab_size
        self.width = state.final.shape[1]
        self._logit_rows = 0  # of the last step
        self.draft = DraftRunner(draft, self._team, embed, vocab_size) if draft else None

    def run(self, batch: Sequence[SequenceRows], meanwhile: Callable[[], None] | None = None) -> NDArray[np.float32]:
        """As ModelRunner has it."""
        self._prepare(batch)
        self._team.run(self._program, self.op_times, meanwhile)
        return self._logits()

    def trace(self, batch: Sequence[SequenceRows]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Run a step layer by layer, to look into it.

        Returns the residual stream before the first layer and after each, float32 [layers + 1, rows, width], and what
        `run` returns.
        """
        self._prepare(batch)
        rows = self._state.inputs.record["rows"][0]
        streams, done = [self._state.hidden[:rows].copy()], 0
        for end in self._program.layer_ends:
            self._team.run(self._program.part(done, end))
            streams.append(self._state.hidden[:rows].copy())
            done = end
        self._team.run(self._program.part(done, len(self._program)))
        return np.array(streams), self._logits()

    def _logits(self) -> NDArray[np.float32]:
        return self._state.logits[: self._logit_rows, : self.vocab_size]

    def _prepare(self, batch: Sequence[SequenceRows]) -> None:
        """Fill the step's inputs, and the residual stream with embeddings."""
        assert all(rows.position + len(rows.tokens) <= self.context_length for rows in batch)
        self._logit_rows = fill_step(self._state, batch)
        tokens = [token for rows in batch for token in rows.tokens]
        self.embed(tokens, self._state.hidden[: len(tokens)])
        if self._state.recurrent is not None:
            self._state.recurrent.begin(batch)

    @property
    def likeliest(self) -> list[int]:
        """Of each row of the last run's logits, the lowest id of the largest; -1 if no logit is above -inf."""
        return list(self._state.likeliest[: self._logit_rows].tolist())

    @property
    def final(self) -> NDArray[np.float32]:
        """The last run's normalized hidden states, as final_rows asked for: float32 [rows, width], in batch order.

        A view valid until the next run.
        """
        return self._state.final[: self._state.inputs.final_count[0]]

    def read_block(self, group: int, block: int) -> bytes:
        """As ModelRunner has it."""
        return b"".join(array.tobytes() for array in self._arrays_of(group, block))

    def write_block(self, group: int, block: int, data: bytes) -> None:
        """As ModelRunner has it."""
        assert len(data) == self.groups[group].block_bytes
        start = 0
        for array in self._arrays_of(group, block):
            array[...] = np.frombuffer(data, np.uint8, array.nbytes, start).reshape(array.shape)
            start += array.nbytes

    def rewind(self, slot: int, rows: int) -> None:
        """As ModelRunner has it."""
        if self._state.recurrent is not None:
            self._state.recurrent.rewind(slot, rows)

    def copy_state(self, source: int, target: int) -> None:
        """As ModelRunner has it."""
        recurrent = self._settled(source)
        recurrent.write(target, recurrent.states[source])

    def read_state(self, slot: int) -> bytes:
        """As ModelRunner has it."""
        state: bytes = self._settled(slot).states[slot].tobytes()
        return state

    def write_state(self, slot: int, data: bytes) -> None:
        """As ModelRunner has it."""
        recurrent = self._settled(slot)
        recurrent.write(slot, np.frombuffer(data, np.float32).reshape(recurrent.states[slot].shape))

    def _settled(self, slot: int) -> RecurrentState:
        """The states, once the slot's own is what stands there."""
        recurrent = self._state.recurrent
        if recurrent is None or recurrent.settle is None:
            raise IndexError("this model has no recurrent state")
        if recurrent.begin_settling(slot):
            self._team.run(recurrent.settle)
        return recurrent

    def _arrays_of(self, group: int, block: int) -> list[NDArray[np.uint8]]:
        """The places of a block: keys and values of each layer of its group."""
        return self._state.attention.groups[group].arrays_of(block)

    def close(self) -> None:
        """End the team's threads; no run may follow."""
        self._team.stop()

    @property
    def team(self) -> Team:
        """The threads, for measuring the machine as they see it."""
        return self._team
