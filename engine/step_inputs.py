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
    inputs, row = state.inputs, 0
    positions: list[int] = []
    logits: list[int] = []
    final: list[int] = []
    for rows in batch:
        end = row + len(rows.tokens)
        positions += range(rows.position, rows.position + len(rows.tokens))
        logits += range(end - rows.logit_rows, end)
        final += [row + place for place in rows.final_rows]
        row = end
    inputs.positions[:row] = positions
    inputs.logit_index[: len(logits)] = logits
    inputs.final_index[: len(final)] = final
    inputs.final_count[0] = len(final)
    inputs.record["rows"], inputs.record["logit_rows"] = row, len(logits)
    return [_fill_group(group, index, batch) for index, group in enumerate(state.attention.groups)]


def _fill_group(group: KvGroupState, index: int, batch: Sequence[SequenceRows]) -> NDArray[np.int32]:
    """Fill the inputs of a group's layers; returns the tables that they point to, one after another."""
    tables = np.array([block for rows in batch for block in rows.block_tables[index]], np.int32)
    address, addresses = tables.ctypes.data, list[int]()
    for rows in batch:
        assert len(rows.block_tables[index]) * BLOCK_TOKENS >= rows.position + len(rows.tokens)
        addresses += [address] * len(rows.tokens)
        address += len(rows.block_tables[index]) * tables.itemsize
    group.tables[: len(addresses)] = addresses
    group.cut([(rows.position, len(rows.tokens)) for rows in batch])
    return tables
