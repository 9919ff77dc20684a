"""What a request had computed that is to leave nothing in the prefix cache is free once the request is done with it."""

from typing import Any

import pytest

from engine.api.config import EngineConfig
from engine.api.request import Request
from tests.engine.scheduling.loop_bench import Bench
from tests.engine.scripted import ScriptedRunner, a_request

PROMPT = tuple(range(1, 14))  # three full blocks and one token
KINDS: tuple[dict[str, Any], ...] = ({}, {"windows": (0, 6)}, {"state_slots": 12})


def alone(**request: Any) -> Request:
    return a_request(PROMPT, **{"cache_salt": "@its own", "caches_prompt": False, **request})


def a_bench(lanes: int = 2, **runner: Any) -> Bench:
    return Bench(ScriptedRunner(**runner), EngineConfig(lanes=lanes, speculation="off"))


def cached(bench: Bench) -> tuple[int, int]:
    """Blocks and snapshots."""
    return bench.memory.cached_blocks, bench.memory._cache.snapshots


@pytest.mark.parametrize("kind", KINDS)
def test_its_blocks_go_back_when_it_ends(kind: dict[str, Any]) -> None:
    bench = a_bench(**kind)
    bench.submit(alone())
    bench.finish()
    assert cached(bench) == (0, 0) and not bench.memory._cache.roots
    bench.submit(a_request(PROMPT))
    bench.finish()
    assert bench.memory.cached_blocks > 0


def test_they_go_back_when_it_is_aborted_or_fails() -> None:
    bench = a_bench()
    heard = bench.submit(alone())
    bench.step()
    bench.loop.abort(heard.job.sequence)
    bench.finish()
    assert cached(bench) == (0, 0)

    def fail(batch: object) -> None:
        raise RuntimeError("broken")

    bench.submit(alone(ignore_eos=True))
    bench.step()
    bench.runner.before_run = fail
    bench.finish()
    assert cached(bench) == (0, 0)


def test_nobody_elses_are_evicted_for_them() -> None:
    bench = a_bench(n_blocks=10)
    bench.submit(a_request(PROMPT, max_tokens=1))
    bench.finish()
    before = bench.memory.cached_blocks
    for number in range(5):
        bench.submit(alone(cache_salt=f"@{number}"))
        bench.finish()
    assert bench.memory.evicted_blocks == 0 and bench.memory.cached_blocks == before == 3


@pytest.mark.parametrize("lanes", [1, 3])
def test_all_its_answers_share_them_even_one_after_another(lanes: int) -> None:
    bench = a_bench(lanes)
    heard = [bench.submit(alone(choice=choice)) for choice in range(3)]
    bench.finish()
    assert [one.job.sequence.held.cached_tokens for one in heard] == [0, 12, 12]
    assert cached(bench) == (0, 0)


def test_one_that_has_to_give_way_finds_its_own_again() -> None:
    bench = a_bench(n_blocks=9, max_rows=16)
    heard = [bench.submit(alone(cache_salt=f"@{n}", max_tokens=12, ignore_eos=True)) for n in range(2)]
    bench.finish()
    assert sum(one.job.sequence.standing.preemptions for one in heard) > 0
    assert [len(one.tokens) for one in heard] == [12, 12]
    assert cached(bench) == (0, 0)
