"""What sequences find in the prefix cache, what they leave there, and what they give back while they run."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.memory import miss, prefix_cache
from engine.memory.blocks import BlockPool
from engine.memory.chain import Node
from engine.memory.eviction import EvictionQueue
from engine.memory.memory import SNAPSHOT_TOKENS, Memory
from engine.pooling import Pooling
from engine.request import Request
from engine.runner_protocol import NO_BLOCK
from engine.sequence import Sequence
from engine.token_chooser import TokenChooser
from tests.engine.memory.bench import BLOCK_TOKENS, MemoryBench
from tests.engine.scripted import ScriptedRunner

PROMPT = tuple(range(1, 14))  # three full blocks and one token


def test_the_second_turn_of_a_chat_finds_prompt_and_answer_of_the_first() -> None:
    bench = MemoryBench()
    history = bench.answer(PROMPT, tokens=12)
    assert bench.cached((*history, 9, 9, 9)) == 24  # all whole blocks that were computed; the last token never is
    bench.check()


def test_the_last_token_is_always_computed() -> None:
    bench = MemoryBench()
    bench.answer(PROMPT[:12])
    assert bench.cached(PROMPT[:12]) == 8
    assert bench.cached(PROMPT[:13]) == 12
    assert bench.cached(PROMPT[:3]) == 0


def test_another_first_token_finds_nothing() -> None:
    bench = MemoryBench()
    bench.answer(PROMPT)
    assert bench.cached((31, *PROMPT[1:])) == 0


def test_nothing_crosses_from_one_caller_or_salt_to_another() -> None:
    bench = MemoryBench()
    bench.answer(PROMPT, caller=b"ab", cache_salt="c")
    others = [(b"a", "bc"), (b"", "c"), (b"ab", ""), (b"ab", "C"), (b"abc", "")]
    assert [bench.cached(PROMPT, caller=caller, cache_salt=salt) for caller, salt in others] == [0] * len(others)
    assert bench.cached(PROMPT, caller=b"ab", cache_salt="c") == 12


def test_equal_digests_of_other_tokens_give_no_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (prefix_cache, miss):
        monkeypatch.setattr(module, "block_digest", lambda parent, tokens: b"the same")
    bench = MemoryBench()
    bench.answer(PROMPT)
    bench.check()
    assert bench.cached((9, 9, 9, 9, 9)) == 0
    bench.answer((9, 9, 9, 9, 9))
    bench.check()
    assert bench.cached(PROMPT) == 12
    assert bench.cached((*PROMPT[:4], *PROMPT[:9])) == 4


def test_answers_to_one_prompt_share_its_blocks() -> None:
    bench = MemoryBench()
    first = bench.generate(bench.start(PROMPT), 1)
    second = bench.start(PROMPT, choice=1)
    assert second.computed == 12 and second.tables[0] == first.tables[0][:3]
    bench.generate(second, 5)
    bench.check()


def test_equal_prompts_that_arrived_together_catch_up_with_the_first() -> None:
    bench = MemoryBench()
    first, second = bench.start(PROMPT), bench.start(PROMPT)
    bench.step(second, rows=2)
    bench.generate(first, 1)
    assert bench.memory.catch_up(second) == 10
    assert (second.computed, second.cached_tokens) == (12, 10)
    bench.check()
    assert bench.memory.catch_up(second) == 0
    bench.generate(second, 1)
    assert second.tokens == first.tokens


def test_blocks_computed_twice_at_once_are_held_once() -> None:
    bench = MemoryBench()
    first, second = bench.start(PROMPT), bench.start(PROMPT)
    for sequence in (first, second):
        bench.generate(sequence, 1)
    assert first.tables[0][:3] == second.tables[0][:3]
    assert bench.memory.free_blocks == bench.memory.blocks - 5
    bench.check()


def test_a_prompt_that_must_be_computed_whole_finds_nothing_but_leaves_all() -> None:
    bench = MemoryBench()
    bench.answer(PROMPT, prompt_logprobs=1)
    assert bench.cached(PROMPT, prompt_logprobs=1) == 0
    assert bench.cached(PROMPT) == 12
    pooled = Request(id="r", prompt=PROMPT, max_tokens=0, pooling=Pooling.MEAN)
    sequence = Sequence(pooled, 0, TokenChooser(pooled))
    bench.resume(sequence)
    assert sequence.computed == 0


def test_a_scored_prompt_that_was_preempted_in_its_answer_is_not_scored_again() -> None:
    bench = MemoryBench()
    sequence = bench.generate(bench.start(PROMPT, prompt_logprobs=1), 3)
    bench.end(sequence)
    sequence.preemptions += 1
    bench.resume(sequence)
    assert (sequence.computed, sequence.cached_tokens) == (12, 0)


def test_growing_takes_nothing_if_there_is_too_little() -> None:
    bench = MemoryBench(n_blocks=4, windows=(0, 8))
    first = bench.start(PROMPT[:5])
    assert bench.memory.grow(first, 9) and not bench.memory.grow(first, 17)
    assert [len(table) for table in first.tables] == [3, 3]
    assert bench.memory.reach(first) == 16
    bench.check()


def test_what_is_cached_gives_way_to_what_runs() -> None:
    bench = MemoryBench(n_blocks=6)
    bench.answer(PROMPT)
    assert (bench.memory.free_blocks, bench.memory.cached_blocks) == (6, 3)
    bench.generate(bench.start((20,) * 20), 1)
    assert bench.memory.evicted_blocks == 2
    assert bench.memory.cached_blocks == 1
    bench.end(bench.running[0])
    assert bench.cached(PROMPT) == 4, "the chain is given up from its end"
    bench.check()


def test_the_chain_used_longest_ago_goes_first() -> None:
    bench = MemoryBench(n_blocks=9)
    old, new = (1,) * 13, (2,) * 13
    bench.answer(old)
    bench.answer(new)
    bench.cached(old)
    bench.generate(bench.start((3,) * 20), 1)
    bench.end(bench.running[0])
    assert (bench.cached(old), bench.cached(new)) == (12, 4)


def test_a_long_chain_does_not_stay_for_ever() -> None:
    bench = MemoryBench(n_blocks=12)
    old = (1,) * 29
    bench.answer(old)
    for first in range(2, 7):
        bench.answer((first,) * 13)
    assert [bench.cached((first,) * 13) for first in (5, 6)] == [12, 12]
    assert bench.cached(old) < 28


def test_nothing_computed_is_taken_back_for_what_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_cache, "block_digest", lambda parent, tokens: b"the same")
    bench = MemoryBench()
    bench.answer((9,) * 5)
    sequence = bench.start((*PROMPT, *PROMPT))
    bench.step(sequence, rows=13)  # whose first block finds no place in the tree
    bench.memory._cache._evict_block(0)
    bench.answer(PROMPT)
    assert bench.memory.catch_up(sequence) == 0 and sequence.computed == 13
    bench.generate(sequence, 1)
    bench.check()


def test_a_preempted_sequence_goes_on_from_its_own_blocks() -> None:
    bench = MemoryBench()
    sequence = bench.generate(bench.start(PROMPT), 6)
    bench.end(sequence)
    sequence.preemptions += 1
    assert (sequence.computed, sequence.tables) == (0, ())
    bench.resume(sequence)
    assert (sequence.computed, sequence.cached_tokens) == (16, 0)
    bench.generate(sequence, 9)


def test_after_a_fault_nothing_of_the_sequence_is_found_nor_what_others_built_on_it() -> None:
    bench = MemoryBench()
    bench.answer(PROMPT[:5])
    faulty = bench.generate(bench.start(PROMPT), 2)
    other = bench.generate(bench.start(PROMPT), 9)
    bench.fault(faulty)
    bench.check()
    bench.generate(other, 14)
    bench.end(other)
    bench.check()
    assert bench.cached(tuple(other.tokens)) == 4


def test_releasing_what_has_no_lane_changes_nothing() -> None:
    bench = MemoryBench()
    request = Request(id="r", prompt=PROMPT)
    waiting = Sequence(request, 4, TokenChooser(request))
    bench.memory.release(waiting)
    bench.memory.forget(waiting)
    bench.check()


# Windows


def test_blocks_behind_the_window_are_given_back_and_stay_cached() -> None:
    bench = MemoryBench(windows=(0, 6))
    sequence = bench.generate(bench.start(PROMPT), 8)
    assert sequence.computed == 20
    assert [block == NO_BLOCK for block in sequence.tables[1]] == [True, True, True, False, False]
    assert NO_BLOCK not in sequence.tables[0]
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
    assert sequence.tables[1].count(NO_BLOCK) == given_back


# Recurrent states


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
    sequence.preemptions += 1
    bench.resume(sequence)
    assert sequence.computed == 20
    bench.generate(sequence, 12)


# Faults inside


def failing(act: Callable[..., Any], after: int) -> Callable[..., Any]:
    """The same act, whose call number `after` fails for want of memory."""
    calls = 0

    def counted(*args: Any, **others: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == after:
            raise MemoryError
        return act(*args, **others)

    return counted


BREAKABLE = [
    (ScriptedRunner, "copy_state"),
    (BlockPool, "take"),
    (BlockPool, "share"),
    (BlockPool, "keep"),
    (prefix_cache.PrefixCache, "hit"),
    (prefix_cache.PrefixCache, "root"),
    (Node, "__init__"),
    (Memory, "_join"),
]


def fault_in(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, after: int) -> bool:
    """Whether the act fails at that call, in the life of a sequence that finds something and evicts something."""
    bench = MemoryBench(windows=(0, 6), state_slots=5, n_blocks=12)
    bench.answer((*PROMPT, 3))
    other = bench.generate(bench.start(PROMPT), 1)
    request = Request(id="r", prompt=(*PROMPT, *PROMPT, *PROMPT))
    sequence = Sequence(request, 4, TokenChooser(request))
    failed = False
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failing(getattr(owner, name), after))
        try:
            bench.resume(sequence)
            bench.generate(sequence, 1, rows=7)
        except MemoryError:
            failed = True
        bench.memory.forget(sequence)
    bench.running = [other]
    bench.check()
    bench.generate(other, 6)
    bench.end(other)
    assert bench.memory.free_blocks == bench.memory.blocks
    return failed


@pytest.mark.parametrize(("owner", "name"), BREAKABLE)
def test_a_fault_at_any_moment_leaks_nothing(owner: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [fault_in(monkeypatch, owner, name, after) for after in range(1, 30)]
    assert faults[0] and not faults[-1]
    assert faults == sorted(faults, reverse=True)


def test_what_cannot_be_queued_for_eviction_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(fault_in(monkeypatch, EvictionQueue, "add", after) for after in range(1, 30))


def test_figures_count_prompts_and_hits() -> None:
    bench = MemoryBench()
    bench.answer(PROMPT)
    bench.answer(PROMPT)
    assert (bench.memory.looked_up_tokens, bench.memory.hit_tokens) == (26, 12)
    assert (bench.memory.blocks, bench.memory.cached_blocks) == (64, 3)
    assert BLOCK_TOKENS * bench.memory.blocks_for(13) == 16
