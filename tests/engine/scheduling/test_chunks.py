"""How the rows of prompts are dealt out."""

import pytest

from engine.api.config import EngineConfig
from engine.run.pace import Chunk, Pace
from engine.scheduling.chunks import LEAST_CHUNK, STEPS_TO_BELIEVE, ChunkBudget

DECODE, ROW = 0.016, 0.001


def a_budget(*, is_measured: bool = True, row: float = ROW, **config: float) -> ChunkBudget:
    """Each step that decodes takes 16 ms, and each row of a prompt 1 ms, unless told otherwise."""
    pace = Pace()
    if is_measured:
        pace.note(7, (), DECODE)
        for rows in (16, 64, 512) * STEPS_TO_BELIEVE:
            pace.note(0, (Chunk(0, rows),), rows * row)
    return ChunkBudget(EngineConfig(**config), pace)  # type: ignore[arg-type]


def taken(budget: ChunkBudget, single_rows: int, *prompts: int) -> list[int]:
    budget.begin(single_rows)
    return [budget.take(0, tokens) for tokens in prompts]


def test_alone_prompts_share_a_step_oldest_first() -> None:
    assert taken(a_budget(prefill_rows=100), 0, 70, 70, 70) == [70, 26, 0]  # whole tiles of 16 rows


def test_alone_a_prompt_s_step_takes_half_a_second_at_most_in_whole_tiles() -> None:
    assert taken(a_budget(row=0.0005), 0, 4000) == [512]
    assert taken(a_budget(row=0.004), 0, 4000) == [112]
    assert taken(a_budget(row=0.004), 0, 50, 50, 50, 50) == [50, 50, 12, 0]


def test_alone_a_prompt_gets_some_rows_however_slow_they_are() -> None:
    assert taken(a_budget(row=0.1), 0, 4000, 4000) == [64, 0]
    assert taken(a_budget(row=0.1, prefill_rows=20), 0, 4000) == [20]
    assert taken(a_budget(row=0.1), 0, 10) == [10]


def test_alone_a_prompt_s_step_is_the_longer_the_more_each_costs_whatever_its_rows() -> None:
    pace = Pace()
    budget = ChunkBudget(EngineConfig(), pace)
    for _ in range(STEPS_TO_BELIEVE):
        for rows in (16, 32, 64, 128):
            pace.note(0, (Chunk(0, rows),), 0.05 + 0.004 * rows)
    (rows,) = taken(budget, 0, 4000)
    assert 0.045 < 0.05 / (0.05 + 0.004 * rows) < 0.055


def test_what_each_step_costs_is_measured_and_then_believed() -> None:
    pace = Pace()
    budget = ChunkBudget(EngineConfig(), pace)
    sizes = []
    for _ in range(2 * STEPS_TO_BELIEVE + 1):
        sizes += taken(budget, 0, 4000)
        pace.note(0, (Chunk(0, sizes[-1]),), 0.5 + 0.008 * sizes[-1])
    assert sizes == [128, *[32, 64] * STEPS_TO_BELIEVE]
    assert taken(budget, 0, 4000) == [512]


def test_the_first_chunk_of_all_is_a_small_one() -> None:
    assert taken(a_budget(is_measured=False), 0, 4000) == [128]
    assert taken(a_budget(is_measured=False, prefill_rows=48), 0, 4000) == [48]


def test_beside_answers_a_chunk_fills_the_planned_share_of_the_target_in_whole_tiles() -> None:
    # 70 of 100 ms leave 54 rows; 7 + 54 rows are 3 tiles and 13 rows.
    assert taken(a_budget(itl_target_ms=100), 7, 4000) == [41]
    assert taken(a_budget(itl_target_ms=100), 7, 30, 4000, 4000) == [30, 11, 0]


def test_the_default_target_is_seven_decode_steps() -> None:
    budget = a_budget()
    assert taken(budget, 7, 4000) == [57]
    assert budget.last_target == pytest.approx(7 * DECODE, rel=0.01)


def test_a_step_that_takes_a_third_longer_than_foretold_is_still_within_the_target() -> None:
    for target in (0.05, 0.1, 0.5):
        budget = a_budget(itl_target_ms=1e3 * target)
        (rows,) = taken(budget, 7, 4000)
        assert 0.4 * target < DECODE + rows * ROW <= target / (4 / 3)


def test_until_rates_are_measured_rows_fill_up_to_the_knee() -> None:
    budget = a_budget(is_measured=False, knee_rows=16)
    assert taken(budget, 7, 4000) == [9]
    assert budget.last_target is None


def test_rows_up_to_the_knee_are_planned_whatever_the_target_is_if_they_cost_next_to_nothing() -> None:
    assert taken(a_budget(row=1e-4, itl_target_ms=1), 7, 4000) == [9]
    assert taken(a_budget(row=1e-3, itl_target_ms=1), 7, 4000) == [1]


def test_a_prompt_gets_its_chunk_in_time_where_the_target_leaves_no_room() -> None:
    budget = a_budget(row=0.01, itl_target_ms=1, prefill_interval=4)
    assert [taken(budget, 7, 4000, 4000) for _ in range(8)] == [[0, 0]] * 3 + [[LEAST_CHUNK, 0]] + [[0, 0]] * 3 + [
        [LEAST_CHUNK, 0]
    ]


def test_what_is_left_of_a_prompt_is_a_whole_grant() -> None:
    budget = a_budget(row=0.01, itl_target_ms=1, prefill_interval=2)
    assert [taken(budget, 7, 5) for _ in range(4)] == [[0], [5], [0], [5]]


def test_more_answers_than_the_knee_leave_no_free_rows() -> None:
    budget = a_budget(is_measured=False, knee_rows=16, prefill_interval=3)
    assert [taken(budget, 20, 4000) for _ in range(3)] == [[0], [0], [LEAST_CHUNK]]
