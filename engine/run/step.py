"""Computes a step's plan: all its rows at once."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineFaultError
from engine.run.runner_protocol import ModelRunner, SequenceRows
from engine.run.sequence import TokenSequence
from engine.scheduling.plan import PlannedRows, StepPlan


class Computed(NamedTuple):
    """What the model gave for one sequence's rows."""

    sequence: TokenSequence
    position: int  # of the first of these rows
    logits: NDArray[np.float32]  # [rows that logits were wanted of, vocabulary]; a view valid until the next run
    likeliest: list[int]  # token of each of these rows, as ModelRunner has it
    final: NDArray[np.float32]  # [rows that final hidden states were wanted of, width]; likewise
    drafts: tuple[int, ...] = ()  # tokens of the last rows, that were only guessed


def compute(runner: ModelRunner, plan: StepPlan, meanwhile: Callable[[], None]) -> list[Computed]:
    """Run a plan; nothing of it is to be trusted if that raises. `meanwhile`: as ModelRunner.run has it."""
    if not plan.rows:
        return []
    batch = [_sequence_rows(rows) for rows in plan.rows]
    logits = runner.run(batch, meanwhile)
    likeliest, final = runner.likeliest, runner.final
    computed, row, state, no_final = [], 0, 0, final[:0]
    for planned, rows in zip(plan.rows, batch, strict=True):
        end, last = row + rows.logit_rows, state + len(rows.final_rows)
        own_final = final[state:last] if last > state else no_final
        computed.append(
            Computed(planned.sequence, rows.position, logits[row:end], likeliest[row:end], own_final, planned.drafts)
        )
        row, state = end, last
    if (len(logits), len(likeliest), len(final)) != (row, row, state):
        raise EngineFaultError("The model gave results for the wrong number of rows; report what the log says.")
    return computed


def _sequence_rows(rows: PlannedRows) -> SequenceRows:
    sequence = rows.sequence
    tokens = sequence.tokens[sequence.computed : sequence.computed + rows.count]
    return SequenceRows(
        tokens=[*tokens, *rows.drafts] if rows.drafts else tokens,
        position=sequence.computed,
        block_tables=sequence.tables,
        wants_logits=rows.wants_logits,
        every_row=rows.every_row,
        final_rows=rows.final_rows,
        state_slot=sequence.state_slot,
        keep_states=bool(rows.drafts),
    )
