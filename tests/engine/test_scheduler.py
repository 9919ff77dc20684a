"""What the scheduler plans, whom it admits, and that nothing it held is lost."""

import random

import pytest

from engine.blocks import BlockPool
from engine.config import EngineConfig
from engine.scheduler import PlannedRows, Scheduler
from engine.sequence import Sequence
from engine.token_chooser import TokenChooser
from tests.engine.scripted import a_request

BLOCK_TOKENS = 4


def a_sequence(prompt_tokens: int, max_new_tokens: int = 4) -> Sequence:
    request = a_request((1,) * prompt_tokens)
    return Sequence(request, max_new_tokens, TokenChooser(request))


def a_scheduler(
    *,
    lanes: int = 4,
    n_blocks: int = 100,
    max_rows: int = 32,
    max_logit_rows: int = 32,
    alone: int = 16,
    shared: int = 4,
) -> tuple[Scheduler, BlockPool]:
    config = EngineConfig(lanes=lanes, prefill_rows_alone=alone, prefill_rows_shared=shared)
    pool = BlockPool(n_blocks, BLOCK_TOKENS)
    return Scheduler(config, pool, max_rows, max_logit_rows), pool


def step(scheduler: Scheduler) -> list[PlannedRows]:
    """Plan a step, compute it, and give each sequence that is due a token."""
    return computed(scheduler, scheduler.schedule())


def computed(scheduler: Scheduler, plan: list[PlannedRows]) -> list[PlannedRows]:
    due = [rows.sequence for rows in plan if rows.wants_logits]
    scheduler.advance(plan)
    for sequence in due:
        sequence.tokens.append(1)
    return plan


def counts(plan: list[PlannedRows]) -> list[int]:
    return [rows.count for rows in plan]


def test_a_prompt_is_cut_into_chunks_and_only_the_last_wants_logits() -> None:
    scheduler, _ = a_scheduler(alone=16)
    scheduler.add(a_sequence(35))
    chunks = []
    for _ in range(3):
        plan = scheduler.schedule()
        chunks += [(rows.count, rows.wants_logits) for rows in plan]
        scheduler.advance(plan)
    assert chunks == [(16, False), (16, False), (3, True)]


def test_decode_rows_come_first_and_shrink_the_prefill() -> None:
    scheduler, _ = a_scheduler(alone=16, shared=4)
    old, new = a_sequence(5), a_sequence(30)
    scheduler.add(old)
    step(scheduler)
    scheduler.add(new)
    plan = step(scheduler)
    assert [rows.sequence for rows in plan] == [old, new]
    assert counts(plan) == [1, 4]


def test_the_oldest_prompt_gets_rows_first_and_the_rest_goes_to_the_next() -> None:
    scheduler, _ = a_scheduler(alone=16)
    for prompt_tokens in (10, 10, 10):
        scheduler.add(a_sequence(prompt_tokens))
    assert counts(step(scheduler)) == [10, 6]


def test_a_step_never_has_more_rows_than_the_runner_takes() -> None:
    scheduler, _ = a_scheduler(lanes=4, max_rows=4, alone=100, shared=100)
    for prompt_tokens in (1, 1, 1, 9):
        scheduler.add(a_sequence(prompt_tokens, max_new_tokens=20))
    assert [counts(step(scheduler)) for _ in range(9)] == [[1, 1, 1, 1]] * 9
    with pytest.raises(ValueError, match="lanes must be at most the 2 rows of a step, not 4"):
        a_scheduler(lanes=4, max_rows=2)


def test_lanes_bound_how_many_run_and_the_first_come_is_first_served() -> None:
    scheduler, _ = a_scheduler(lanes=2)
    sequences = [a_sequence(3) for _ in range(4)]
    for sequence in sequences:
        scheduler.add(sequence)
    step(scheduler)
    assert scheduler.running == sequences[:2]
    scheduler.remove(sequences[0])
    step(scheduler)
    assert scheduler.running == sequences[1:3]


def test_a_large_request_waits_for_blocks_and_is_not_overtaken() -> None:
    scheduler, pool = a_scheduler(n_blocks=4)
    small, large, late = a_sequence(5, 4), a_sequence(13, 4), a_sequence(1, 1)
    for sequence in (small, large, late):
        scheduler.add(sequence)
    step(scheduler)
    assert scheduler.running == [small]
    scheduler.remove(small)
    step(scheduler)
    assert scheduler.running == [large] and pool.free_blocks == 0
    assert list(scheduler.waiting) == [late]


def test_the_last_token_needs_no_block() -> None:
    scheduler, pool = a_scheduler()
    scheduler.add(a_sequence(BLOCK_TOKENS, 1))
    scheduler.schedule()
    assert pool.n_blocks - pool.free_blocks == 1


def test_removal_at_any_stage_frees_everything() -> None:
    scheduler, pool = a_scheduler(lanes=1)
    running, waiting = a_sequence(40), a_sequence(3)
    scheduler.add(running)
    scheduler.add(waiting)
    step(scheduler)
    scheduler.remove(waiting)
    scheduler.remove(running)
    assert pool.free_blocks == pool.n_blocks
    assert not scheduler.has_work


@pytest.mark.parametrize("seed", range(20))
def test_random_arrivals_and_removals_end_without_deadlock_or_leak(seed: int) -> None:
    rng = random.Random(seed)
    scheduler, pool = a_scheduler(lanes=rng.randint(1, 5), n_blocks=rng.randint(12, 30), max_rows=rng.randint(5, 40))
    arrivals = [a_sequence(rng.randint(1, 30), rng.randint(1, 18)) for _ in range(40)]
    live: list[Sequence] = []
    for _ in range(5000):
        if arrivals and rng.random() < 0.3:
            live.append(arrivals.pop())
            scheduler.add(live[-1])
        assert bool(step(scheduler)) == bool(live)
        held = [block for sequence in scheduler.running for block in sequence.blocks]
        assert len(set(held)) == len(held) == pool.n_blocks - pool.free_blocks
        for sequence in list(live):
            assert sequence.computed <= len(sequence.blocks) * BLOCK_TOKENS
            if sequence.new_tokens == sequence.max_new_tokens or rng.random() < 0.01:
                scheduler.remove(sequence)
                live.remove(sequence)
    assert not live and not arrivals and pool.free_blocks == pool.n_blocks


def a_scored_sequence(prompt_tokens: int) -> Sequence:
    request = a_request((1,) * prompt_tokens, max_tokens=0, prompt_logprobs=1)
    return Sequence(request, 0, TokenChooser(request))


def test_a_prompt_that_is_scored_gets_no_more_rows_than_there_is_room_for_logits() -> None:
    scheduler, pool = a_scheduler(lanes=3, max_logit_rows=8, shared=7)
    scored = a_scored_sequence(17)
    scheduler.add(a_sequence(3, 30))
    step(scheduler)
    scheduler.add(scored)
    scheduler.add(a_sequence(3))
    planned = []
    for _ in range(3):
        plan = scheduler.schedule()
        planned.append([(rows.count, rows.logit_rows) for rows in plan])
        computed(scheduler, plan)
    assert planned == [[(1, 1), (7, 7)]] * 2 + [[(1, 1), (3, 3), (3, 1)]]
    assert len(scored.blocks) == pool.blocks_for(17)


def test_logits_of_a_step_are_dealt_out_in_order_and_a_prompt_without_any_waits() -> None:
    scheduler, _ = a_scheduler(lanes=3, max_logit_rows=3, alone=16, shared=16)
    first, second, third = a_scored_sequence(9), a_sequence(5), a_sequence(20)
    for sequence in (first, second, third):
        scheduler.add(sequence)
    plan = scheduler.schedule()
    assert [(rows.sequence, rows.count, rows.logit_rows) for rows in plan] == [(first, 3, 3), (third, 13, 0)]
    with pytest.raises(ValueError, match="lanes must be at most the 3 rows of a step, not 4"):
        a_scheduler(lanes=4, max_logit_rows=3)


@pytest.mark.parametrize("seed", range(10))
def test_scored_and_other_prompts_share_steps_without_overflow_or_starvation(seed: int) -> None:
    rng = random.Random(seed)
    lanes = rng.randint(1, 5)
    scheduler, pool = a_scheduler(lanes=lanes, max_logit_rows=rng.randint(lanes, 9), alone=rng.randint(1, 20))
    live = [
        a_scored_sequence(rng.randint(1, 30)) if rng.random() < 0.5 else a_sequence(rng.randint(1, 30), 4)
        for _ in range(20)
    ]
    for sequence in live:
        scheduler.add(sequence)
    for _ in range(2000):
        plan = scheduler.schedule()
        assert bool(plan) == bool(live)
        assert sum(rows.logit_rows for rows in plan) <= scheduler._max_logit_rows
        computed(scheduler, plan)
        for sequence in [sequence for sequence in live if sequence.new_tokens >= max(sequence.max_new_tokens, 1)]:
            scheduler.remove(sequence)
            live.remove(sequence)
    assert not live and pool.free_blocks == pool.n_blocks
