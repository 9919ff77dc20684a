"""Turns a step's rows into logits: fills the step record, looks up embeddings, runs the program."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.families.llama import Embed
from engine.families.run_state import Capacity, RunState
from engine.runner_protocol import KvGroup, SequenceRows
from kernels.kv_cache import BLOCK_TOKENS
from kernels.program import Program
from kernels.team import Team


class Runner:
    """One loaded model on one team of threads. Called from one thread only."""

    def __init__(
        self,
        *,
        program: Program,
        state: RunState,
        embed: Embed,
        capacity: Capacity,
        vocab_size: int,
    ) -> None:
        self._program, self._state = program, state
        # For the ledger, which times the look-up and the ops; `op_times` as Team.run fills it.
        self.embed, self.op_names = embed, program.names
        self.op_times: NDArray[np.int64] | None = None
        self._team = Team(capacity.threads)
        self.block_tokens = BLOCK_TOKENS
        self.groups = (KvGroup(capacity.n_blocks, sum(block.nbytes for block in self._arrays_of(0, 0))),)
        self.state_slots, self.state_bytes = 0, 0
        self.max_rows = capacity.max_rows
        self.max_logit_rows = capacity.max_logit_rows
        self.threads = capacity.threads
        self.context_length = capacity.context_length
        self.vocab_size = vocab_size
        self.width = state.final.shape[1]

    def run(self, batch: Sequence[SequenceRows]) -> NDArray[np.float32]:
        """Return float32 [rows that logits are wanted of, vocab_size], a view valid until the next run."""
        inputs, row, logits, final = self._state.inputs, 0, 0, 0
        tables = [np.asarray(rows.block_tables[0], np.int32) for rows in batch]
        for rows, table in zip(batch, tables, strict=True):
            count = len(rows.tokens)
            assert len(table) * BLOCK_TOKENS >= rows.position + count <= self.context_length
            inputs.positions[row : row + count] = np.arange(rows.position, rows.position + count)
            inputs.tables[row : row + count] = table.ctypes.data
            wanted = rows.logit_rows
            inputs.logit_index[logits : logits + wanted] = range(row + count - wanted, row + count)
            logits += wanted
            if rows.final_rows:
                inputs.final_index[final : final + len(rows.final_rows)] = np.array(rows.final_rows) + row
                final += len(rows.final_rows)
            row += count
        inputs.final_count[0] = final
        tokens = np.fromiter((token for rows in batch for token in rows.tokens), np.int64, row)
        self._state.hidden[:row] = self.embed(tokens)
        parts = self._state.attention.plan.parts([(rows.position, len(rows.tokens)) for rows in batch])
        inputs.attention_parts[: len(parts)] = parts
        record = inputs.record[0]
        record["rows"], record["logit_rows"], record["parts"] = row, logits, len(parts)
        self._team.run(self._program, self.op_times)
        return self._state.logits[:logits, : self.vocab_size]

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

    def copy_state(self, source: int, target: int) -> None:
        """As ModelRunner has it."""
        raise IndexError("this model has no recurrent state")

    def read_state(self, slot: int) -> bytes:
        """As ModelRunner has it."""
        raise IndexError("this model has no recurrent state")

    def write_state(self, slot: int, data: bytes) -> None:
        """As ModelRunner has it."""
        raise IndexError("this model has no recurrent state")

    def _arrays_of(self, group: int, block: int) -> list[NDArray[np.uint8]]:
        """The places of a block: keys and values of each layer of its group."""
        assert group == 0
        return [array[block] for layer in self._state.caches for array in layer]

    def close(self) -> None:
        """End the team's threads; no run may follow."""
        self._team.stop()

    @property
    def team(self) -> Team:
        """The threads, for measuring the machine as they see it."""
        return self._team
