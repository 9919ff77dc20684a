"""One step: the rows that are planned for it, and what the model gives for them."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineFaultError
from engine.run.pace import Chunk
from engine.run.runner_protocol import ModelRunner, SequenceRows
from engine.run.sequence import TokenSequence


class PlannedRows(NamedTuple):
    """The next rows of a sequence, and after them rows of tokens that are only guessed."""

    sequence: TokenSequence
    rows: SequenceRows
    drafts: tuple[int, ...] = ()  # the guessed tokens: the last of the rows'

    @property
    def known_rows(self) -> int:
        """Rows of tokens that are known, not guessed."""
        return len(self.rows.tokens) - len(self.drafts)

    @property
    def is_decode(self) -> bool:
        """Whether all but the newest token of an answer was computed before; to be asked before the step is noted."""
        return self.sequence.new_tokens > 0 and self.sequence.pending == 1


class StepPlan(NamedTuple):
    """The rows of a step, and what was known of them when they were planned: the sequences go on, the plan does not."""

    rows: tuple[PlannedRows, ...]
    preempted: int  # sequences that gave up their memory for it
    faults: tuple[tuple[TokenSequence, Exception], ...]  # sequences that could not even be planned
    total_rows: int
    decode_rows: int  # one for each sequence that decodes
    draft_rows: int
    single_rows: int  # of sequences that had one token to be fed: they decode, or soon will
    chunks: tuple[Chunk, ...]  # of the others


class Computed(NamedTuple):
    """What the model gave for the rows of one sequence."""

    planned: PlannedRows
    logits: NDArray[np.float32]  # [logit rows, vocabulary]; a view valid until the next run
    likeliest: list[int]  # token of each row of logits, as ModelRunner has it
    final: NDArray[np.float32]  # [final rows, width]; likewise a view


def planned_rows(
    sequence: TokenSequence, count: int, drafts: tuple[int, ...] = (), *, needs_states: bool = False
) -> PlannedRows:
    """Plan the next `count` tokens of a sequence, and drafts after them.

    needs_states: the final hidden states of all rows are needed, for a draft block that follows them.
    """
    held, pooler = sequence.held, sequence.pooler
    position, end = held.computed, held.computed + count
    tokens = sequence.tokens[position:end]
    tokens += drafts
    logit_rows, final_rows = 0, range(0)
    if drafts or sequence.is_scored:
        logit_rows = len(tokens)
    elif pooler is None and end == len(sequence.tokens):
        logit_rows = 1
    if pooler is not None:
        final_rows = pooler.wanted(position, count)
    elif needs_states:
        final_rows = range(len(tokens))
    rows = SequenceRows(tokens, position, held.tables, logit_rows, final_rows, held.state_slot, bool(drafts))
    return PlannedRows(sequence, rows, drafts)


def step_plan(
    planned: Iterable[PlannedRows], preempted: int = 0, faults: Iterable[tuple[TokenSequence, Exception]] = ()
) -> StepPlan:
    """Count the rows of a step, of which nothing was computed yet."""
    rows = tuple(planned)
    single = [one for one in rows if one.sequence.pending == 1]
    return StepPlan(
        rows,
        preempted,
        tuple(faults),
        total_rows=sum([len(one.rows.tokens) for one in rows]),
        decode_rows=len([one for one in single if one.sequence.new_tokens > 0]),
        draft_rows=sum([len(one.drafts) for one in rows]),
        single_rows=len(single),
        chunks=tuple([Chunk(one.rows.position, one.known_rows) for one in rows if one.sequence.pending > 1]),
    )


def compute(runner: ModelRunner, plan: StepPlan, meanwhile: Callable[[], None]) -> list[Computed]:
    """Run a plan; nothing of it is to be trusted if that raises. `meanwhile`: as ModelRunner.run has it."""
    if not plan.rows:
        return []
    logits = runner.run([planned.rows for planned in plan.rows], meanwhile)
    likeliest, final = runner.likeliest, runner.final
    computed, row, state, no_final = [], 0, 0, final[:0]
    for planned in plan.rows:
        end, last = row + planned.rows.logit_rows, state + len(planned.rows.final_rows)
        own_final = final[state:last] if last > state else no_final
        computed.append(Computed(planned, logits[row:end], likeliest[row:end], own_final))
        row, state = end, last
    if (len(logits), len(likeliest), len(final)) != (row, row, state):
        raise EngineFaultError("The model gave results for the wrong number of rows; report what the log says.")
    return computed
