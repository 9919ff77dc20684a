"""The engine's loop, driven step by step without its thread."""

import random
from collections.abc import Sequence as Rows
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.blocks import BlockPool
from engine.config import EngineConfig
from engine.errors import EngineFaultError, OctavoError
from engine.event_stream import EventStream
from engine.loop import Delivery, EngineLoop, Job
from engine.outputs import RequestOutput
from engine.request import Event, FinishEvent, FinishReason, Request, SamplingParams, TextEvent
from engine.runner_protocol import SequenceRows
from engine.sampler import Sampler, TokenChooser
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from tests.engine.scripted import (
    VOCAB_SIZE,
    ScriptedRunner,
    a_request,
    hashed_logits,
    letter_tokenizer,
    letters,
    script,
)


@dataclass
class Heard:
    """What one request's stream was sent."""

    job: Job
    items: list[Event | OctavoError] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(item.text for item in self.items if isinstance(item, TextEvent))

    @property
    def last(self) -> Event | OctavoError:
        return self.items[-1]


class Bench:
    """A loop with a scripted runner, and all that it published."""

    def __init__(self, runner: ScriptedRunner | None = None, config: EngineConfig | None = None) -> None:
        self.runner = runner or ScriptedRunner()
        self.pool = BlockPool(self.runner.n_blocks, self.runner.block_tokens)
        self.scheduler = Scheduler(config or EngineConfig(), self.pool, self.runner.max_rows)
        self.loop = EngineLoop(self.runner, self.scheduler, Sampler(VOCAB_SIZE), self._publish)
        self.heard: dict[EventStream, Heard] = {}
        self.publications = 0

    def submit(self, request: Request) -> Heard:
        sequence = Sequence(request, request.max_tokens or 8, TokenChooser(request.sampling))
        output = RequestOutput(request, letter_tokenizer(), sequence.max_new_tokens)
        heard = Heard(Job(sequence, output, EventStream(lambda: self.loop.abort(sequence))))
        self.heard[heard.job.stream] = heard
        self.loop.submit(heard.job)
        return heard

    def step(self) -> None:
        """Obey waiting commands and run one step, as the thread does."""
        self.loop._take_commands()
        self.loop.step()

    def finish(self) -> None:
        while self.scheduler.has_work or not self.loop._inbox.empty():
            self.step()
        assert self.pool.free_blocks == self.pool.n_blocks
        assert not self.scheduler.running and not self.loop._jobs

    def _publish(self, batch: list[Delivery]) -> None:
        self.publications += 1
        for stream, item in batch:
            self.heard[stream].items.append(item)


def finish_of(heard: Heard) -> FinishEvent:
    assert isinstance(heard.last, FinishEvent)
    assert sum(not isinstance(item, TextEvent) for item in heard.items) == 1
    return heard.last


def test_a_request_runs_to_its_script() -> None:
    bench = Bench()
    bench.runner.logits_of = script(3, letters("hello"))
    heard = bench.submit(a_request((1, 2, 3), max_tokens=5))
    bench.finish()
    finish = finish_of(heard)
    assert heard.text == "hello"
    assert (finish.reason, finish.prompt_tokens, finish.completion_tokens) == (FinishReason.LENGTH, 3, 5)
    assert bench.runner.batches == [[(0, 3)], [(3, 1)], [(4, 1)], [(5, 1)], [(6, 1)]]


def test_a_stop_string_and_an_end_of_turn_end_a_request() -> None:
    bench = Bench()
    bench.runner.logits_of = script(3, letters("abcdefg"))
    stopped = bench.submit(a_request(stop=("cd",)))
    bench.finish()
    assert (stopped.text, finish_of(stopped).reason, finish_of(stopped).completion_tokens) == ("ab", "stop", 4)
    bench.runner.logits_of = script(3, (*letters("xy"), 0))
    ended = bench.submit(a_request())
    bench.finish()
    assert (ended.text, finish_of(ended).reason, finish_of(ended).completion_tokens) == ("xy", "stop", 3)


def test_no_token_is_fed_twice_and_none_is_left_out() -> None:
    bench = Bench()
    for prompt in ((1, 2, 3), (4, 5)):
        bench.submit(a_request(prompt, max_tokens=3, ignore_eos=True))
    bench.finish()
    assert bench.runner.batches == [[(0, 3), (0, 2)], [(3, 1), (2, 1)], [(4, 1), (3, 1)]]


def test_a_step_publishes_all_its_events_at_once() -> None:
    bench = Bench()
    for prompt in ((1,), (2,), (3,)):
        bench.submit(a_request(prompt, max_tokens=4, ignore_eos=True))
    bench.finish()
    assert bench.publications == 4


def test_timings_are_not_negative_and_cover_all_stages() -> None:
    bench = Bench()
    heard = bench.submit(a_request(max_tokens=4, ignore_eos=True))
    bench.finish()
    timings = finish_of(heard).timings
    assert timings.queue_seconds >= 0 and timings.prefill_seconds > 0 and timings.decode_seconds > 0


def random_request(rng: random.Random, number: int) -> Request:
    greedy = rng.random() < 0.4
    sampling = SamplingParams(
        temperature=0 if greedy else rng.choice([0.5, 1.0, 1.5]),
        top_k=rng.choice([0, 5]),
        top_p=rng.choice([1.0, 0.9]),
        min_p=rng.choice([0.0, 0.02]),
        seed=rng.randrange(2**40),
    )
    return a_request(
        tuple(rng.randrange(1, VOCAB_SIZE) for _ in range(rng.randint(1, 30))),
        max_tokens=rng.randint(1, 30),
        stop=rng.choice([(), ("ab", "e"), ("x",)]),
        ignore_eos=rng.random() < 0.3,
        name=f"r{number}",
        sampling=sampling,
    )


def alone(request: Request) -> list[Event | OctavoError]:
    bench = Bench()
    heard = bench.submit(request)
    bench.finish()
    return heard.items


def essence(items: list[Event | OctavoError]) -> list[object]:
    """Everything of a request's events but the times."""
    return [
        (item.reason, item.prompt_tokens, item.completion_tokens) if isinstance(item, FinishEvent) else item
        for item in items
    ]


@pytest.mark.parametrize("seed", range(25))
def test_neighbours_arrivals_and_aborts_change_no_event_of_a_request(seed: int) -> None:
    rng = random.Random(seed)
    config = EngineConfig(
        lanes=rng.randint(1, 6), prefill_rows_alone=rng.randint(1, 40), prefill_rows_shared=rng.randint(1, 10)
    )
    runner = ScriptedRunner(n_blocks=rng.randint(16, 60), max_rows=rng.randint(6, 48))
    bench = Bench(runner, config)
    todo = [random_request(rng, number) for number in range(14)]
    heard, aborted = list[Heard](), set[EventStream]()
    while todo or bench.scheduler.has_work:
        if todo and (rng.random() < 0.3 or not bench.scheduler.has_work):
            heard.append(bench.submit(todo.pop()))
        if rng.random() < 0.03:
            victim = rng.choice(heard).job
            bench.loop.abort(victim.sequence)
            aborted.add(victim.stream)
        bench.step()
        held = [block for sequence in bench.scheduler.running for block in sequence.blocks]
        assert len(set(held)) == len(held) == bench.pool.n_blocks - bench.pool.free_blocks
    bench.finish()
    for one in heard:
        expected, got = essence(alone(one.job.sequence.request)), essence(one.items)
        if finish_of(one).reason is FinishReason.ABORT:
            assert one.job.stream in aborted
            assert got[:-1] == expected[: len(got) - 1]
        else:
            assert got == expected


def test_an_abort_frees_lane_and_blocks_before_the_next_step() -> None:
    bench = Bench(config=EngineConfig(lanes=1))
    first, second = bench.submit(a_request(max_tokens=8, ignore_eos=True)), bench.submit(a_request(max_tokens=1))
    bench.step()
    bench.loop.abort(first.job.sequence)
    bench.step()
    assert finish_of(first).reason is FinishReason.ABORT
    assert finish_of(second).reason is FinishReason.LENGTH
    bench.finish()


def test_aborts_of_waiting_ended_and_unknown_requests_are_harmless() -> None:
    bench = Bench(config=EngineConfig(lanes=1))
    first, waiting = bench.submit(a_request(max_tokens=2, ignore_eos=True)), bench.submit(a_request())
    bench.loop.abort(waiting.job.sequence)
    bench.loop.abort(waiting.job.sequence)
    bench.finish()
    bench.loop.abort(first.job.sequence)
    bench.step()
    assert finish_of(waiting).reason is FinishReason.ABORT
    assert finish_of(first).reason is FinishReason.LENGTH


def is_fault(heard: Heard) -> bool:
    return isinstance(heard.last, EngineFaultError) and all(isinstance(item, TextEvent) for item in heard.items[:-1])


def test_a_fault_of_the_runner_ends_the_requests_of_that_step_only(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(config=EngineConfig(lanes=2))
    hit = [bench.submit(a_request(name="first")), bench.submit(a_request(name="second"))]
    spared = bench.submit(a_request(name="third"))

    def fail_once(batch: Rows[SequenceRows]) -> None:
        bench.runner.before_run = lambda batch: None
        raise ZeroDivisionError("broken step")

    bench.runner.before_run = fail_once
    bench.finish()
    assert all(is_fault(heard) for heard in hit)
    assert essence(spared.items) == essence(alone(a_request(name="third")))
    assert "first, second" in caplog.text and "broken step" in caplog.text


def test_logits_of_the_wrong_count_are_a_fault_of_the_runner() -> None:
    bench = Bench()
    heard = bench.submit(a_request())
    bench.runner.run = lambda batch: np.zeros((2, VOCAB_SIZE), np.float32)  # type: ignore[method-assign]
    bench.finish()
    assert is_fault(heard)


@pytest.mark.parametrize("fault_step", range(1, 7))
def test_a_poisoned_request_ends_alone_whatever_the_step(fault_step: int) -> None:
    """Logits of one request become NaN at a step; its neighbours do not notice."""
    bench = Bench()
    poison = (30, 30, 30)

    def logits_of(known: tuple[int, ...]) -> NDArray[np.float32]:
        poisoned = known[:3] == poison and len(known) == 2 + fault_step
        return np.full(VOCAB_SIZE, np.nan, np.float32) if poisoned else hashed_logits(known)

    bench.runner.logits_of = logits_of
    requests = [a_request((n, n, n), max_tokens=8, ignore_eos=True) for n in (1, 2, 30, 4)]
    heard = [bench.submit(request) for request in requests]
    bench.finish()
    assert isinstance(heard[2].last, EngineFaultError) and "no usable logits" in str(heard[2].last)
    assert len(heard[2].items) <= fault_step
    for one in (heard[0], heard[1], heard[3]):
        assert essence(one.items) == essence(alone(one.job.sequence.request))


def test_a_fault_in_a_request_s_text_ends_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    heard = [bench.submit(a_request((n,), max_tokens=6, ignore_eos=True)) for n in (1, 2, 3)]

    def broken(token: int) -> None:
        raise UnicodeError("broken text")

    monkeypatch.setattr(heard[1].job.output, "push", broken)
    bench.finish()
    assert is_fault(heard[1])
    for one in (heard[0], heard[2]):
        assert essence(one.items) == essence(alone(one.job.sequence.request))
