"""Computes a step: fills the inputs of its program, looks up embeddings, runs the program, and gives back logits.

A step's inputs say where its rows are, which blocks they see, and which rows need logits or final hidden states. A
model's own draft block runs on the same threads: from the final state of a token, and the token after it, to logits of
the next one.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.families.emit.run_state import Capacity, RunState, SlotState
from engine.families.family import Built, Draft, Embed
from engine.run.runner_protocol import KvGroup, SequenceRows
from kernels.attention.kv_cache import BLOCK_TOKENS
from kernels.run.team import Team


def fill_step(state: RunState, batch: Sequence[SequenceRows]) -> int:
    """Fill all inputs but the rows themselves; returns how many rows of logits the program will give."""
    inputs, row = state.inputs, 0
    positions: list[int] = []
    logits: list[int] = []
    final: list[int] = []
    for rows in batch:
        count = len(rows.tokens)
        end = row + count
        positions += range(rows.position, rows.position + count)
        logits += range(end - rows.logit_rows, end)
        if rows.final_rows:
            final += [row + place for place in rows.final_rows]
        row = end
    inputs.positions[:row] = positions
    inputs.logit_index[: len(logits)] = logits
    inputs.final_index[: len(final)] = final
    inputs.final_count[0] = len(final)
    inputs.record["rows"], inputs.record["logit_rows"] = row, len(logits)
    spans = [(rows.position, len(rows.tokens)) for rows in batch]
    for index, group in enumerate(state.attention.groups):
        group.fill(spans, [rows.block_tables[index] for rows in batch])
    return len(logits)


class DraftRunner:
    """The draft block of a Runner, on its team of threads: neither runs while the other does.

    Its keys and values stand in the blocks of the trunk's first group, at the positions of the final states that they
    come from: a sequence's own block table serves both.
    """

    def __init__(self, draft: Draft, team: Team, embed: Embed, vocab_size: int) -> None:
        self._program, self._state = draft.program, draft.state
        self._tokens, self._before = draft.tokens, draft.before
        self._team, self._embed, self._vocab_size = team, embed, vocab_size
        self._logit_rows = 0  # of the last run

    def run(self, batch: Sequence[SequenceRows], states: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return float32 [logit rows, vocab_size], a view valid until the next run of the draft.

        states: float32 [rows, width], the final state at each row's position, of the trunk or of the draft itself.
        tokens: of the position after, so that logits are of the position after that.
        """
        tokens = [token for rows in batch for token in rows.tokens]
        assert states.shape == (len(tokens), self._state.hidden.shape[1])
        self._logit_rows = fill_step(self._state, batch)
        self._embed(tokens, self._tokens[: len(tokens)])
        self._before[: len(tokens)] = states
        self._team.run(self._program)
        return self._state.logits[: self._logit_rows, : self._vocab_size]

    @property
    def likeliest(self) -> list[int]:
        """Of each row of the last run's logits, the lowest id of the largest; -1 if no logit is above -inf."""
        return list(self._state.likeliest[: self._logit_rows].tolist())

    @property
    def final(self) -> NDArray[np.float32]:
        """The last run's final states, as final_rows asked for: float32 [rows, width]; the next draft continues them.

        A view valid until the next run, the trunk's too.
        """
        return self._state.final[: self._state.inputs.final_count[0]]


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
            KvGroup(group.n_blocks, group.block_bytes, group.window) for group in state.attention.groups
        )
        self.state_slots = min((kind.slots for kind in state.slots), default=0)
        self.state_bytes = sum(kind.slot_bytes for kind in state.slots)
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
        for kind in self._state.slots:
            kind.begin(batch)

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
        for kind in self._state.slots:
            kind.rewind(slot, rows)

    def copy_state(self, source: int, target: int) -> None:
        """As ModelRunner has it."""
        for kind in self._settled(source):
            kind.copy(source, target)

    def read_state(self, slot: int) -> bytes:
        """As ModelRunner has it."""
        return b"".join(kind.read(slot) for kind in self._settled(slot))

    def write_state(self, slot: int, data: bytes) -> None:
        """As ModelRunner has it."""
        assert len(data) == self.state_bytes
        start = 0
        for kind in self._state.slots:
            kind.write(slot, data[start : start + kind.slot_bytes])
            start += kind.slot_bytes

    def _settled(self, slot: int) -> Sequence[SlotState]:
        """All kinds of states, once the slot of each holds the sequence's own."""
        kinds = self._state.slots
        if not kinds:
            raise IndexError("this model has no recurrent state")
        for kind in kinds:
            if (program := kind.settle(slot)) is not None:
                self._team.run(program)
        return kinds

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
