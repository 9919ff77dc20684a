"""Groups with a window give back what no row sees, and models with recurrent states keep some of those."""

from typing import Any

import pytest

from engine.memory.memory import SNAPSHOT_TOKENS
from engine.run.runner_protocol import NO_BLOCK
from tests.engine.memory.bench import MemoryBench

PROMPT = tuple(range(1, 14))  # three full blocks and one token


def test_blocks_behind_the_window_are_given_back_and_stay_cached() -> None:
    bench = MemoryBench(windows=(0, 6))
    sequence = bench.generate(bench.start(PROMPT), 8)
    assert sequence.computed == 20
    assert [block == NO_BLOCK for block in sequence.held.tables[1]] == [True, True, True, False, False]
    assert NO_BLOCK not in sequence.held.tables[0]
    assert bench.memory._pools[1].cached_blocks == 3
    bench.check()


def test_a_long_sequence_fits_a_pool_as_large_as_its_window() -> None:
    bench = MemoryBench(windows=(6,), n_blocks=3, state_slots=3)
    assert bench.memory.fits(200)
    sequence = bench.start((5,))
    for _ in range(100):
        assert bench.step(sequence)
    bench.check()


@pytest.mark.parametrize(("window", "blocks"), [(1, 1), (2, 2), (5, 2), (6, 3), (9, 3), (10, 4)])
def test_a_sequence_fits_if_the_blocks_of_a_window_do(window: int, blocks: int) -> None:
    def fits(n_blocks: int) -> bool:
        return MemoryBench(windows=(window,), n_blocks=n_blocks).memory.fits(100)

    assert fits(blocks) and not (blocks > 1 and fits(blocks - 1))


def test_a_hit_needs_the_blocks_of_the_window_before_it() -> None:
    bench = MemoryBench(windows=(0, 6))
    history = bench.answer(PROMPT, tokens=8)
    assert bench.cached((*history, 9)) == 20
    pool, cache = bench.memory._pools[1], bench.memory._cache
    while pool.cached_blocks:  # the first to go are those that the sequence passed by
        cache._evict_block(1)
        left = pool.cached_blocks
        assert bench.cached((*history, 9)) == (20 if left >= 2 else 0)
        bench.check()


def test_the_window_where_prompts_part_is_kept_longer_than_others() -> None:
    bench = MemoryBench(windows=(0, 6))
    system = (20,) * 9
    for question in range(1, 3):
        bench.answer((*system, *(question,) * 14), tokens=1)
    while bench.memory._pools[1].cached_blocks > 4:
        bench.memory._cache._evict_block(1)
    assert bench.cached((*system, 9)) == 8


def test_a_block_missing_within_the_window_breaks_the_hit() -> None:
    bench = MemoryBench(windows=(0, 9))
    bench.answer(tuple(range(1, 22)), tokens=1)
    (node,) = [node for node in bench.nodes() if node.depth == 4]
    bench.memory._cache._drop_block(node, 1)
    assert bench.cached(tuple(range(1, 23))) == 12


@pytest.mark.parametrize(("window", "given_back"), [(4, 4), (5, 4), (6, 3), (9, 3), (10, 2)])
def test_a_block_goes_as_soon_as_no_row_sees_it(window: int, given_back: int) -> None:
    bench = MemoryBench(windows=(0, window))
    sequence = bench.start((7,) * 21)
    bench.step(sequence, rows=20)
    assert sequence.held.tables[1].count(NO_BLOCK) == given_back


def recurrent(snapshots: int, **others: Any) -> MemoryBench:
    return MemoryBench(state_slots=3 + snapshots, **others)


def test_a_prompt_stops_where_its_state_is_worth_keeping() -> None:
    bench = recurrent(4, context_length=2 * SNAPSHOT_TOKENS, n_blocks=300, max_rows=600)
    sequence = bench.start((7,) * (SNAPSHOT_TOKENS + 10))
    ends = []
    while sequence.pending > 1:
        end = bench.memory.chunk_end(sequence, len(sequence.tokens))
        bench.step(sequence, SNAPSHOT_TOKENS)
        ends.append(sequence.computed)
        assert end == sequence.computed
        if sequence.new_tokens:
            break
    assert ends == [SNAPSHOT_TOKENS, SNAPSHOT_TOKENS + 8, SNAPSHOT_TOKENS + 10]


def test_no_state_is_kept_of_where_a_chunk_happened_to_end() -> None:
    bench = recurrent(4)
    sequence = bench.start((7,) * 30)
    for _ in range(3):
        bench.step(sequence, rows=8)
    assert (sequence.computed, bench.memory._cache.snapshots) == (24, 0)


def test_a_model_without_states_needs_no_stops() -> None:
    bench = MemoryBench()
    assert bench.memory.chunk_end(bench.start(PROMPT), 13) == 13


def test_the_second_turn_finds_the_last_state_of_the_first() -> None:
    bench = recurrent(4)
    history = bench.answer(PROMPT, tokens=12)
    assert bench.cached((*history, 9, 9, 9)) == 24
    assert bench.cached((*PROMPT, 30)) == 12, "the end of the prompt is kept as well"
    assert bench.memory._cache.snapshots == 2
    bench.check()


def test_the_state_where_prompts_part_is_kept_once_two_have_begun_alike() -> None:
    bench = recurrent(6)
    system, questions = (20,) * 9, [(question,) * 6 for question in range(1, 4)]
    found = [bench.cached_then_answered(system + question) for question in questions]
    assert found == [0, 0, 8]
    bench.check()


def test_without_room_for_snapshots_a_recurrent_model_finds_nothing() -> None:
    bench = recurrent(0)
    history = bench.answer(PROMPT, tokens=12)
    assert bench.cached(history) == 0
    bench.check()


def test_after_a_fault_its_state_is_not_believed_even_on_another_ones_blocks() -> None:
    bench = recurrent(1)
    for prompt in (PROMPT, (30, *PROMPT)):
        bench.answer(prompt, tokens=1)
    assert bench.cached(PROMPT) == 0
    bench.fault(bench.generate(bench.start(PROMPT), 1))
    bench.check()
    assert bench.cached(PROMPT) == 0


def test_the_state_of_the_prompt_used_longest_ago_gives_way() -> None:
    bench = recurrent(2)
    for first in (20, 21, 22):
        bench.answer((first, *PROMPT), tokens=1)
    assert [bench.cached((first, *PROMPT)) for first in (20, 21, 22)] == [0, 12, 12]


def test_a_preempted_sequence_goes_on_from_its_rolling_state() -> None:
    bench = recurrent(4)
    sequence = bench.generate(bench.start(PROMPT), 9)
    bench.end(sequence)
    sequence.standing.preemptions += 1
    bench.resume(sequence)
    assert sequence.computed == 20
    bench.generate(sequence, 12)
