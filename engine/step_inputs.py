"""Fills the inputs of a step's program: where rows are, which blocks they see, what is wanted of them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.families.kv_group import KvGroupState
from engine.families.run_state import RunState
from engine.runner_protocol import SequenceRows
from kernels.kv_cache import BLOCK_TOKENS


def fill_step(state: RunState, batch: Sequence[SequenceRows]) -> list[NDArray[np.int32]]:
    """Fill all inputs but the rows themselves; returns the block tables, which must live until the program has run."""
    inputs, row, logits, final = state.inputs, 0, 0, 0
    for rows in batch:
        count = len(rows.tokens)
        inputs.positions[row : row + count] = np.arange(rows.position, rows.position + count)
        wanted = rows.logit_rows
        inputs.logit_index[logits : logits + wanted] = range(row + count - wanted, row + count)
        logits += wanted
        if rows.final_rows:
            inputs.final_index[final : final + len(rows.final_rows)] = np.array(rows.final_rows) + row
            final += len(rows.final_rows)
        row += count
    inputs.final_count[0] = final
    inputs.record["rows"], inputs.record["logit_rows"] = row, logits
    tables: list[NDArray[np.int32]] = []
    for index, group in enumerate(state.attention.groups):
        tables += _fill_group(group, index, batch)
    return tables


def _fill_group(group: KvGroupState, index: int, batch: Sequence[SequenceRows]) -> list[NDArray[np.int32]]:
    """Fill the inputs of a group's layers; returns the tables that they point to."""
    row, tables = 0, [np.asarray(rows.block_tables[index], np.int32) for rows in batch]
    for rows, table in zip(batch, tables, strict=True):
        count = len(rows.tokens)
        assert len(table) * BLOCK_TOKENS >= rows.position + count
        group.tables[row : row + count] = table.ctypes.data
        row += count
    group.cut([(rows.position, len(rows.tokens)) for rows in batch])
    return tables
