"""Computes a step's plan: all its rows at once, and after a fault each sequence alone, so that the guilty one ends."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineFaultError
from engine.runner_protocol import ModelRunner, SequenceRows
from engine.scheduler import PlannedRows
from engine.sequence import Sequence

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Computed:
    """What the model gave for one sequence's rows."""

    sequence: Sequence
    position: int  # of the first of these rows
    logits: NDArray[np.float32]  # [rows that logits were wanted of, vocabulary]; a view valid until the next run
    final: NDArray[np.float32]  # [rows that final hidden states were wanted of, width]; likewise


def compute(
    runner: ModelRunner, plan: list[PlannedRows], on_fault: Callable[[Sequence, Exception], None]
) -> list[Computed]:
    """Run a plan. What cannot be computed even alone is handed to `on_fault` and left out."""
    try:
        return _run(runner, plan) if plan else []
    except Exception as error:
        if len(plan) == 1:
            on_fault(plan[0].sequence, error)
            return []
        logger.exception("a step of %d requests failed; each is computed alone", len(plan))
    return [computed for rows in plan for computed in _run_alone(runner, rows, on_fault)]


def _run_alone(
    runner: ModelRunner, rows: PlannedRows, on_fault: Callable[[Sequence, Exception], None]
) -> list[Computed]:
    try:
        (computed,) = _run(runner, [rows])
    except Exception as error:
        on_fault(rows.sequence, error)
        return []
    return [Computed(computed.sequence, computed.position, computed.logits.copy(), computed.final.copy())]


def _run(runner: ModelRunner, plan: list[PlannedRows]) -> list[Computed]:
    logits = runner.run([_sequence_rows(rows) for rows in plan])
    logits_of = _dealt(logits, [rows.logit_rows for rows in plan])
    final_of = _dealt(runner.final, [len(rows.final_rows) for rows in plan])
    return [
        Computed(rows.sequence, rows.sequence.computed, logits, final)
        for rows, logits, final in zip(plan, logits_of, final_of, strict=True)
    ]


def _dealt(results: NDArray[np.float32], counts: list[int]) -> list[NDArray[np.float32]]:
    """Cut what a run gave into what each sequence's rows asked for."""
    bounds = list(accumulate(counts, initial=0))
    if len(results) != bounds[-1]:
        raise EngineFaultError("The model gave results for the wrong number of rows; report what the log says.")
    return [results[start:end] for start, end in pairwise(bounds)]


def _sequence_rows(rows: PlannedRows) -> SequenceRows:
    sequence = rows.sequence
    return SequenceRows(
        tokens=sequence.tokens[sequence.computed : sequence.computed + rows.count],
        position=sequence.computed,
        block_tables=(sequence.blocks,),
        wants_logits=rows.wants_logits,
        every_row=rows.every_row,
        final_rows=rows.final_rows,
    )
