"""Decides which sequences run and how many tokens of each go into the next step; no clock, no threads."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from engine.blocks import BlockPool
from engine.config import EngineConfig
from engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class PlannedRows:
    """The next `count` tokens of a sequence go into the step."""

    sequence: Sequence
    count: int

    @property
    def wants_logits(self) -> bool:
        """True if these rows reach the end of what is known, so that the next token can be chosen."""
        return self.count == self.sequence.pending


class Scheduler:
    """First come, first served. A sequence gets a lane and all blocks of its worst case at once, so none can starve."""

    def __init__(self, config: EngineConfig, pool: BlockPool, max_rows: int) -> None:
        if config.lanes > max_rows:
            raise ValueError(f"lanes must be at most the {max_rows} rows of a step, not {config.lanes}.")
        self._config = config
        self._pool = pool
        self._max_rows = max_rows
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence whose worst case fits the pool."""
        assert self._pool.blocks_for(sequence.worst_case_tokens) <= self._pool.n_blocks
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence that ended, at any stage, and free what it held."""
        if sequence in self.running:
            self.running.remove(sequence)
        else:
            self.waiting.remove(sequence)
        self._pool.free(sequence.blocks)
        sequence.blocks = []

    def schedule(self) -> list[PlannedRows]:
        """Admit what fits, then plan a step: one row of each decoding sequence, then prompt rows, oldest first."""
        self._admit()
        decoding = [PlannedRows(sequence, 1) for sequence in self.running if sequence.pending == 1]
        budget = self._config.prefill_rows_shared if decoding else self._config.prefill_rows_alone
        return decoding + self._plan_prefill(min(budget, self._max_rows - len(decoding)))

    def advance(self, plan: Iterable[PlannedRows]) -> None:
        """Note that the rows of a plan were computed."""
        for rows in plan:
            rows.sequence.computed += rows.count

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self._config.lanes:
            blocks = self._pool.try_allocate(self._pool.blocks_for(self.waiting[0].worst_case_tokens))
            if blocks is None:
                return
            sequence = self.waiting.popleft()
            sequence.blocks = blocks
            self.running.append(sequence)

    def _plan_prefill(self, budget: int) -> list[PlannedRows]:
        plan = []
        for sequence in self.running:
            if sequence.pending > 1 and budget > 0:
                plan.append(PlannedRows(sequence, min(sequence.pending, budget)))
                budget -= plan[-1].count
        return plan
