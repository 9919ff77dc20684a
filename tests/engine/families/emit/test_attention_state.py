"""What attention layers are told of a step is of that step, whatever the step before was."""

import ctypes
import random

import numpy as np
from numpy.typing import NDArray

from engine.families.emit.attention_state import KvGroupState
from kernels.attention.attention import PartPlan, partial_floats
from kernels.attention.kv_cache import BLOCK_TOKENS

MAX_ROWS = 64
Spans = list[tuple[int, int]]


def a_group(window: int) -> KvGroupState:
    floats = partial_floats(2, 2, 64, context=2048, rows=16)
    plan = PartPlan(group=2, kv_heads=2, head_dim=64, threads=2, partial_floats=floats, window=window)
    return KvGroupState.allocate(plan, 100, MAX_ROWS)


def told(group: KvGroupState, spans: Spans, tables: list[list[int]]) -> tuple[list[list[int]], NDArray[np.void]]:
    """The table that each row's address leads to, and the parts."""
    of_rows = [table for (_, count), table in zip(spans, tables, strict=True) for _ in range(count)]
    addresses = group.tables[: len(of_rows)].tolist()
    seen = [[*(ctypes.c_int32 * len(table)).from_address(at)] for at, table in zip(addresses, of_rows, strict=True)]
    return seen, group.parts[: group.record["parts"][0]].copy()


def test_a_step_s_inputs_do_not_depend_on_the_step_before() -> None:
    draw = random.Random(5)
    for window in (0, 100):
        group = a_group(window)
        spans: Spans = []
        tables: list[list[int]] = []
        for _ in range(300):
            if not spans or draw.random() < 0.1:  # others come
                spans = [(draw.randrange(500), draw.choice((1, 1, 1, 5, 9))) for _ in range(draw.randrange(1, 6))]
                tables = [[draw.randrange(100) for _ in range(40)] for _ in spans]
            elif draw.random() < 0.1:  # a table changes where it lies, as it does when blocks are given back
                draw.choice(tables)[draw.randrange(40)] = draw.randrange(100)
            elif draw.random() < 0.1:
                spans = spans[1:] or spans
                tables = tables[-len(spans) :]
            else:
                spans = [(position + count, count) for position, count in spans]
            group.fill(spans, tables)
            fresh = a_group(window)
            fresh.fill(spans, tables)
            assert told(group, spans, tables)[0] == [
                table for (_, count), table in zip(spans, tables, strict=True) for _ in range(count)
            ]
            assert np.array_equal(told(group, spans, tables)[1], told(fresh, spans, tables)[1])


def test_a_step_like_the_last_one_is_not_filled_again_until_it_enters_a_block() -> None:
    group, tables = a_group(0), [[3, 4, 5, 6], [7, 8, 9, 10]]
    group.fill([(0, 1), (5, 1)], tables)
    before = group.tables.copy()
    group.parts["rows"][0] = 99  # what no filling would leave
    for position in range(1, BLOCK_TOKENS - 5):
        group.fill([(position, 1), (5 + position, 1)], tables)
    assert np.array_equal(group.tables, before) and group.parts["rows"][0] == 99
    group.fill([(BLOCK_TOKENS - 5, 1), (BLOCK_TOKENS, 1)], tables)
    assert group.parts["rows"][0] == 1
