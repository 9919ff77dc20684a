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
        return self.count == self.sequence.pending and self.sequence.pooler is None

    @property
    def every_row(self) -> bool:
        """True if these rows are of a prompt that is scored token by token."""
        return self.sequence.scores_prompt and not self.is_decode

    @property
    def logit_rows(self) -> int:
        """How many rows of logits the step computes for them."""
        return self.count if self.every_row else int(self.wants_logits)

    @property
    def is_decode(self) -> bool:
        """True if the prompt was computed before."""
        return self.sequence.new_tokens > 0

    @property
    def final_rows(self) -> range:
        """Which of them final hidden states are wanted of, for an embedding."""
        pooler = self.sequence.pooler
        return range(0) if pooler is None else pooler.wanted(self.sequence.computed, self.count)


class Scheduler:
    """First come, first served. A sequence gets a lane and all blocks of its worst case at once, so none can starve."""

    def __init__(self, config: EngineConfig, pool: BlockPool, max_rows: int, max_logit_rows: int) -> None:
        if config.lanes > min(max_rows, max_logit_rows):
            raise ValueError(
                f"lanes must be at most the {min(max_rows, max_logit_rows)} rows of a step, not {config.lanes}."
            )
        self._config = config
        self._pool = pool
        self._max_rows = max_rows
        self._max_logit_rows = max_logit_rows
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
        n = len(decoding)
        return decoding + self._plan_prefill(min(budget, self._max_rows - n), self._max_logit_rows - n)

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

    def _plan_prefill(self, budget: int, logit_budget: int) -> list[PlannedRows]:
        """Deal out the rows, and rows of logits, that a step has left; a prompt that is scored needs one each."""
        plan = []
        for sequence in self.running:
            count = min(sequence.pending, budget, logit_budget if sequence.scores_prompt else budget)
            rows = PlannedRows(sequence, count)
            if sequence.pending > 1 and count > 0 and rows.logit_rows <= logit_budget:
                plan.append(rows)
                budget -= count
                logit_budget -= rows.logit_rows
        return plan
