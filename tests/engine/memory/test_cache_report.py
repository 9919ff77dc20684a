"""What a prompt hears of the prefix cache, told to the token."""

from typing import Any

import pytest

from engine.api.request import CacheMiss, CacheReport
from engine.memory import prefix_cache
from tests.engine.memory.bench import MemoryBench

PROMPT = tuple(range(1, 15))  # three full blocks and two tokens


def report(bench: MemoryBench, prompt: tuple[int, ...], **request: Any) -> CacheReport | None:
    sequence = bench.start(prompt, explains_cache=True, **request)
    bench.end(sequence)
    return sequence.held.cache_report


def primed(**runner: Any) -> tuple[MemoryBench, tuple[int, ...]]:
    """A bench on which one request was answered, and all the tokens of that: six blocks and three tokens."""
    bench = MemoryBench(**runner)
    return bench, bench.answer(PROMPT, tokens=13)


def test_nothing_is_said_unasked() -> None:
    bench, _ = primed()
    sequence = bench.start(PROMPT)
    assert sequence.held.cached_tokens == 12 and sequence.held.cache_report is None


def test_a_prompt_that_is_new_is_cold() -> None:
    bench, _ = primed()
    assert report(bench, (30, *PROMPT[1:])) == CacheReport(0, 0, CacheMiss.COLD)
    assert report(bench, PROMPT, cache_salt="x") == CacheReport(0, 0, CacheMiss.COLD)


@pytest.mark.parametrize("at", [1, 3, 4, 5, 13, 14, 23, 24, 26])
def test_the_first_token_that_differs_is_named(at: int) -> None:
    bench, history = primed()
    assert len(history) == 27
    other = 31 if history[at] != 31 else 30
    assert report(bench, (*history[:at], other, *history[at + 1 :], *history[:5])) == CacheReport(
        at // 4 * 4, at, CacheMiss.DIFFERS
    )


def test_the_nearest_of_several_prompts_is_meant() -> None:
    bench, history = primed()
    bench.answer((*history[:17], 30, 30, 30, 30, 30, 30))
    bench.answer((*history[:5], 30, 30, 30, 30, 30, 30))
    other = 29 if history[18] != 29 else 28
    assert report(bench, (*history[:18], other, 9, 9, 9)) == CacheReport(16, 18, CacheMiss.DIFFERS)


@pytest.mark.parametrize("length", [13, 14, 16, 17, 27])
def test_a_prompt_of_which_all_could_be_taken_missed_nothing(length: int) -> None:
    bench, history = primed()
    assert report(bench, history[:length]) == CacheReport((length - 1) // 4 * 4, length, CacheMiss.WHOLE)


def test_a_chat_that_goes_on_misses_nothing() -> None:
    bench, history = primed()
    assert report(bench, (*history, 9, 9, 9, 9, 9)) == CacheReport(24, 27, CacheMiss.WHOLE)


def test_what_was_evicted_is_said_to_have_been() -> None:
    bench, history = primed(n_blocks=8)
    bench.generate(bench.start((30,) * 14), 1)
    bench.end(bench.running[0])
    assert report(bench, (*history, 9)) == CacheReport(16, 24, CacheMiss.EVICTED)
    bench.generate(bench.start((31,) * 29), 1)
    assert report(bench, (*history, 9)) == CacheReport(0, 24, CacheMiss.EVICTED)


def test_evicted_blocks_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_cache, "REMEMBERED", 2)
    bench, history = primed(n_blocks=8)
    bench.generate(bench.start((31,) * 29), 1)
    assert len(bench.memory._cache._evicted) == 2
    assert report(bench, (*history, 9)) == CacheReport(0, 8, CacheMiss.EVICTED)


def test_a_state_that_was_dropped_is_said_to_have_been() -> None:
    bench, history = primed(state_slots=4)
    bench.answer((30,) * 14, tokens=4)
    assert report(bench, (*history, 9)) == CacheReport(0, 27, CacheMiss.EVICTED)
    assert report(bench, history[:18]) == CacheReport(0, 18, CacheMiss.EVICTED)


def test_a_prompt_that_is_computed_whole_did_not_ask_the_cache() -> None:
    bench, _ = primed()
    assert report(bench, PROMPT, prompt_logprobs=1) == CacheReport(0, 0, CacheMiss.OFF)


def test_what_is_caught_up_counts() -> None:
    bench = MemoryBench()
    first, second = (bench.start(PROMPT, explains_cache=True) for _ in range(2))
    assert second.held.cache_report == CacheReport(0, 0, CacheMiss.COLD)
    bench.generate(first, 1)
    bench.memory.catch_up(second)
    assert second.held.cache_report == CacheReport(12, 12, CacheMiss.WHOLE)


def test_a_preempted_request_keeps_what_it_was_told_first() -> None:
    bench, _ = primed()
    sequence = bench.start(PROMPT, explains_cache=True)
    before = sequence.held.cache_report
    bench.end(sequence)
    sequence.standing.preemptions += 1
    bench.resume(sequence)
    assert before == sequence.held.cache_report == CacheReport(12, 14, CacheMiss.WHOLE)
