"""What sequences find in the prefix cache, what they leave there, and what they give back while they run."""

import pytest

from engine.api.prompt import Prompt, Span
from engine.api.request import CacheMiss, CacheReport, Pooling, Request
from engine.memory import cache_report, prefix_cache
from engine.run.sequence import TokenSequence
from engine.sampling.token_chooser import TokenChooser
from tests.engine.memory.bench import BLOCK_TOKENS, MemoryBench

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


@pytest.mark.parametrize(("start", "length", "shared"), [(5, 3, 4), (2, 9, 0), (4, 4, 4), (9, 2, 8)])
def test_a_span_is_found_again_only_with_the_same_content(start: int, length: int, shared: int) -> None:
    bench = MemoryBench()
    one, other = (Prompt(PROMPT, (Span(start, length, digest),)) for digest in (b"one", b"other"))
    bench.answer(one)
    second = bench.start(other, explains_cache=True)
    assert second.held.cache_report == CacheReport(shared, start, CacheMiss.DIFFERS)
    bench.end(second)
    assert (bench.cached(one), bench.cached(other), bench.cached(PROMPT)) == (12, shared, shared)
    bench.answer(other)
    assert (bench.cached(one), bench.cached(other)) == (12, 12)


def test_equal_digests_of_other_tokens_give_no_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (prefix_cache, cache_report):
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
    assert second.computed == 12 and second.held.tables[0] == first.held.tables[0][:3]
    bench.generate(second, 5)
    bench.check()


def test_equal_prompts_that_arrived_together_catch_up_with_the_first() -> None:
    bench = MemoryBench()
    first, second = bench.start(PROMPT), bench.start(PROMPT)
    bench.step(second, rows=2)
    bench.generate(first, 1)
    assert bench.memory.catch_up(second) == 10
    assert (second.computed, second.held.cached_tokens) == (12, 10)
    bench.check()
    assert bench.memory.catch_up(second) == 0
    bench.generate(second, 1)
    assert second.tokens == first.tokens


def test_blocks_computed_twice_at_once_are_held_once() -> None:
    bench = MemoryBench()
    first, second = bench.start(PROMPT), bench.start(PROMPT)
    for sequence in (first, second):
        bench.generate(sequence, 1)
    assert first.held.tables[0][:3] == second.held.tables[0][:3]
    assert bench.memory.free_blocks == bench.memory.blocks - 5
    bench.check()


def test_a_prompt_that_must_be_computed_whole_finds_nothing_but_leaves_all() -> None:
    bench = MemoryBench()
    bench.answer(PROMPT, prompt_logprobs=1)
    assert bench.cached(PROMPT, prompt_logprobs=1) == 0
    assert bench.cached(PROMPT) == 12
    pooled = Request(id="r", prompt=Prompt(PROMPT), max_tokens=0, pooling=Pooling.MEAN)
    sequence = TokenSequence(pooled, 0, TokenChooser(pooled))
    bench.resume(sequence)
    assert sequence.computed == 0


def test_a_scored_prompt_that_was_preempted_in_its_answer_is_not_scored_again() -> None:
    bench = MemoryBench()
    sequence = bench.generate(bench.start(PROMPT, prompt_logprobs=1), 3)
    bench.end(sequence)
    sequence.standing.preemptions += 1
    bench.resume(sequence)
    assert (sequence.computed, sequence.held.cached_tokens) == (12, 0)


def test_growing_takes_nothing_if_there_is_too_little() -> None:
    bench = MemoryBench(n_blocks=4, windows=(0, 8))
    first = bench.start(PROMPT[:5])
    assert bench.memory.grow(first, 9) and not bench.memory.grow(first, 17)
    assert [len(table) for table in first.held.tables] == [3, 3]
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
    sequence.standing.preemptions += 1
    assert (sequence.computed, sequence.held.tables) == (0, ())
    bench.resume(sequence)
    assert (sequence.computed, sequence.held.cached_tokens) == (16, 0)
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
    request = Request(id="r", prompt=Prompt(PROMPT))
    waiting = TokenSequence(request, 4, TokenChooser(request))
    bench.memory.release(waiting)
    bench.memory.forget(waiting)
    bench.check()


def test_figures_count_prompts_and_hits() -> None:
    bench = MemoryBench()
    bench.answer(PROMPT)
    bench.answer(PROMPT)
    assert (bench.memory.looked_up_tokens, bench.memory.hit_tokens) == (26, 12)
    assert (bench.memory.blocks, bench.memory.cached_blocks) == (64, 3)
    assert BLOCK_TOKENS * bench.memory.blocks_for(13) == 16
