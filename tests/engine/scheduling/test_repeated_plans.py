"""A step like the last one is planned like it; what is then computed is what a plan made anew would have computed."""

import random

import pytest

from engine.api.config import EngineConfig
from engine.scheduling import scheduler
from tests.engine.scheduling.loop_bench import Bench, Heard, essence
from tests.engine.scripted import ScriptedRunner, a_request


def played(seed: int, windows: tuple[int, ...]) -> tuple[list[list[tuple[int, int]]], list[list[object]], int]:
    """What ran in each step, what each request heard, and how many plans were repeated; requests come, go and leave."""
    draw = random.Random(seed)
    runner = ScriptedRunner(n_blocks=draw.randint(8, 40), windows=windows)
    bench = Bench(runner, EngineConfig(lanes=4, speculation="off"), clock=lambda: 0.0)
    heard: list[Heard] = []
    repeated = 0
    for number in range(80):
        if draw.random() < 0.15:
            prompt = tuple(draw.randrange(8) for _ in range(draw.randint(1, 12)))
            heard.append(bench.submit(a_request(prompt, name=str(number), max_tokens=draw.randint(1, 12))))
        if heard and draw.random() < 0.05:
            bench.loop.abort(draw.choice(heard).job.sequence)
        if bench.scheduler.has_work or not bench.loop._inbox.empty():
            bench.step()
            repeated += bench.scheduler._repeats > 0
    bench.finish()
    return runner.batches, [essence(each.items) for each in heard], repeated


@pytest.mark.parametrize("windows", [(0,), (0, 8)])
@pytest.mark.parametrize("seed", range(20))
def test_a_plan_that_is_repeated_is_the_one_that_would_be_made(
    seed: int, windows: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    batches, heard, repeated = played(seed, windows)
    monkeypatch.setattr(scheduler, "MOST_REPEATS", 0)
    assert played(seed, windows) == (batches, heard, 0)
    assert repeated
