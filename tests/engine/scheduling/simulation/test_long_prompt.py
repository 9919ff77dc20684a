"""A long prompt that arrives on running streams, in virtual time with the costs of a model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest

from engine.api.config import EngineConfig
from engine.run.runner_protocol import SequenceRows
from tests.engine.scheduling.loop_bench import Bench, Heard
from tests.engine.scripted import VOCAB_SIZE, ScriptedRunner, a_request

STREAMS = 7
PROMPT = 4000
ALWAYS_A = np.eye(VOCAB_SIZE, dtype=np.float32)[1]
Cost = Callable[[Sequence[tuple[int, int]]], float]


def small_model(batch: Sequence[tuple[int, int]]) -> float:
    """Seconds for (position, rows): rows cost most, and the more the fewer they are; 17 ms for 7 lanes, 700 rows/s."""
    rows = sum(count for _, count in batch)
    attention = sum(count * position for position, count in batch) * 2e-7
    return 3e-3 + 1.3e-3 * rows + 0.7e-3 * min(rows, 8) + attention


def large_model(batch: Sequence[tuple[int, int]]) -> float:
    """Reading the weights takes 250 ms, which hides the time of some 8 rows; then 40 rows a second."""
    rows = sum(count for _, count in batch)
    return max(0.25, 0.05 + 0.025 * rows) + sum(count * position for position, count in batch) * 1e-6


def expert_model(batch: Sequence[tuple[int, int]]) -> float:
    """Each row reads experts of its own until all are read: a small chunk is nearly as dear as a large one."""
    rows = sum(count for _, count in batch)
    return 0.05 + 0.6 * (1 - 0.94**rows) + 4e-3 * rows


@dataclass
class Clocked:
    """A bench whose clock moves by what each step costs, and the times at which each stream heard something."""

    cost: Cost
    target: float | None = None
    now: float = 0.0
    heard_at: dict[int, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        runner = ScriptedRunner(n_blocks=200, block_tokens=64, max_rows=512, max_logit_rows=64, context_length=8192)
        runner.logits_of = lambda known: ALWAYS_A
        runner.before_run = self._pass_time
        self.bench = Bench(
            runner,
            EngineConfig(lanes=8, itl_target_ms=None if self.target is None else 1e3 * self.target),
            lambda: self.now,
        )

    def _pass_time(self, batch: Sequence[SequenceRows]) -> None:
        self.now += self.cost([(rows.position, len(rows.tokens)) for rows in batch])

    def submit(self, first: int, tokens: int, max_tokens: int) -> Heard:
        return self.bench.submit(a_request((first, *[1] * (tokens - 1)), max_tokens=max_tokens, ignore_eos=True))

    def step(self) -> None:
        before = {id(heard): len(heard.tokens) for heard in self.bench.heard.values()}
        self.bench.step()
        for heard in self.bench.heard.values():
            if len(heard.tokens) > before[id(heard)]:
                self.heard_at.setdefault(id(heard), []).append(self.now)

    def until_first_token(self, heard: Heard) -> float:
        began = self.now
        while not heard.tokens:
            self.step()
        return self.now - began

    def worst_gap(self, heard: Heard, since: float) -> float:
        times = [time for time in self.heard_at[id(heard)] if time >= since]
        return max(later - earlier for earlier, later in pairwise(times))


def alone(cost: Cost) -> float:
    clocked = Clocked(cost)
    return clocked.until_first_token(clocked.submit(9, PROMPT, 1))


def among_streams(cost: Cost, target: float | None, prompt: int = PROMPT) -> tuple[float, float, float]:
    """Seconds to the first token of a long prompt that arrives on running streams, their worst gap, and the target."""
    clocked = Clocked(cost, target)
    streams = [clocked.submit(2 + number, 20 + 30 * number, 3000) for number in range(STREAMS)]
    while min(len(heard.tokens) for heard in streams) < 20:
        clocked.step()
    began = clocked.now
    seconds = clocked.until_first_token(clocked.submit(10, prompt, 1))
    aimed = clocked.bench.scheduler.status().itl_target_seconds
    assert aimed is not None
    return seconds, max(clocked.worst_gap(heard, began) for heard in streams), aimed


@pytest.mark.parametrize(("cost", "longest"), [(small_model, 0.8), (large_model, 4.0), (expert_model, 2.8)])
def test_alone_a_long_prompt_lets_others_in_without_taking_longer(cost: Cost, longest: float) -> None:
    clocked = Clocked(cost)
    clocked.until_first_token(clocked.submit(8, 2000, 1))  # from which it learns what rows cost
    heard, steps = clocked.submit(9, PROMPT, 1), list[float]()
    while not heard.tokens:
        before = clocked.now
        clocked.step()
        steps.append(clocked.now - before)
    whole = sum(cost([(first, min(512, PROMPT - first))]) for first in range(0, PROMPT, 512))
    assert sum(steps) <= 1.04 * whole
    assert max(steps) <= longest


@pytest.mark.parametrize("cost", [small_model, large_model, expert_model])
def test_a_long_prompt_keeps_the_streams_going_and_is_not_kept_waiting(cost: Cost) -> None:
    seconds, gap, target = among_streams(cost, None)
    assert gap <= 2 * target
    assert seconds <= 1.5 * alone(cost)


@pytest.mark.parametrize("target", [0.03, 0.1, 0.4])
def test_a_target_that_was_asked_for_is_kept(target: float) -> None:
    _, gap, aimed = among_streams(small_model, target, prompt=600)
    assert aimed == target and gap <= 2 * target


def test_the_whole_prompt_at_once_would_make_a_gap_beyond_all_bounds() -> None:
    """The way of servers that put a whole prompt, or 512 tokens of it, into one step."""
    _, _, target = among_streams(small_model, None, prompt=600)
    assert small_model([*[(100, 1)] * STREAMS, (0, 505)]) > 4 * target
