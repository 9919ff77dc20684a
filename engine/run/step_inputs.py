"""Fills the inputs of a step's program: where rows are, which blocks they see, what is wanted of them."""

from collections.abc import Sequence

from engine.emit.run_state import RunState
from engine.run.runner_protocol import SequenceRows


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
