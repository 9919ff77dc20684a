"""The async door with its real thread."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine.api.config import EngineConfig
from engine.api.request import Event, FinishEvent, FinishReason, Request, TextEvent
from engine.api.sampling import Sampling
from engine.errors import (
    ContextLengthError,
    EngineFaultError,
    EngineNotReadyError,
    QueueFullError,
    RequestError,
)
from engine.run.runner_protocol import SequenceRows
from engine.run.status import EngineStatus, LaneStatus, StepReport
from engine.service import EngineService, EventStream
from tests.engine.scripted import VOCAB_SIZE, ScriptedRunner, a_request, letter_tokenizer, letters, script


class Gate:
    """Holds the runner before each step until opened."""

    def __init__(self, runner: ScriptedRunner) -> None:
        self._open = threading.Event()
        self.reached = threading.Event()
        runner.before_run = self._wait

    def open(self) -> None:
        self._open.set()

    def _wait(self, batch: Sequence[SequenceRows]) -> None:
        self.reached.set()
        assert self._open.wait(timeout=60)


@asynccontextmanager
async def serving(runner: ScriptedRunner, config: EngineConfig | None = None) -> AsyncIterator[EngineService]:
    service = EngineService(runner, letter_tokenizer(), config or EngineConfig())
    service.start()
    try:
        yield service
    finally:
        await service.stop(drain_seconds=0)


async def collect(stream: EventStream) -> tuple[str, FinishEvent]:
    events = [event async for event in stream]
    assert isinstance(events[-1], FinishEvent)
    return text_of(events), events[-1]


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextEvent))


def submit(service: EngineService, request: Request) -> EventStream:
    (stream,) = service.submit(request)
    return stream


async def until_idle(service: EngineService) -> None:
    async with asyncio.timeout(30):
        while service.running or service.waiting:
            await asyncio.sleep(0.001)


async def test_a_request_is_served() -> None:
    runner = ScriptedRunner()
    runner.logits_of = script(3, letters("hello"))
    async with serving(runner) as service:
        text, finish = await collect(submit(service, a_request(max_tokens=5)))
    assert (text, finish.reason, finish.completion_tokens) == ("hello", FinishReason.LENGTH, 5)
    assert runner.closed


async def test_many_at_once_say_what_each_says_alone() -> None:
    requests = [
        a_request((n % 31 + 1,) * (n % 7 + 1), max_tokens=20, name=f"r{n}", sampling=Sampling(seed=n))
        for n in range(40)
    ]
    async with serving(ScriptedRunner()) as service:
        alone = [(await collect(submit(service, request)))[0] for request in requests]
        together = await asyncio.gather(*(collect(submit(service, request)) for request in requests))
    assert [text for text, _ in together] == alone
    assert len(set(alone)) > 30


async def test_generation_ends_at_the_context_with_length() -> None:
    async with serving(ScriptedRunner(context_length=12)) as service:
        for max_tokens in (None, 100):
            _, finish = await collect(submit(service, a_request((1, 2, 3), max_tokens=max_tokens, ignore_eos=True)))
            assert (finish.reason, finish.completion_tokens) == (FinishReason.LENGTH, 9)


async def test_a_small_pool_of_blocks_bounds_the_context() -> None:
    async with serving(ScriptedRunner(n_blocks=2, block_tokens=4, context_length=64)) as service:
        assert service.context_length == 8
        _, finish = await collect(submit(service, a_request((1, 2, 3), max_tokens=None, ignore_eos=True)))
        assert finish.completion_tokens == 5


async def test_a_prompt_that_fills_the_context_is_refused_at_once() -> None:
    async with serving(ScriptedRunner(context_length=12)) as service:
        with pytest.raises(ContextLengthError, match="The prompt has 12 tokens"):
            submit(service, a_request((1,) * 12))
        _, finish = await collect(submit(service, a_request((1,) * 11)))
        assert finish.completion_tokens == 1


@pytest.mark.parametrize("token", [-1, VOCAB_SIZE])
async def test_a_token_id_outside_the_vocabulary_is_refused_at_once(token: int) -> None:
    async with serving(ScriptedRunner()) as service:
        with pytest.raises(RequestError, match=f"token id {token}; ids of this model are 0 to 31"):
            submit(service, a_request((1, token, 2)))


async def test_a_full_queue_refuses_and_takes_again_when_it_empties() -> None:
    runner = ScriptedRunner()
    gate = Gate(runner)
    async with serving(runner, EngineConfig(lanes=1, max_waiting=4)) as service:
        streams = [submit(service, a_request(max_tokens=2)) for _ in range(5)]
        with pytest.raises(QueueFullError, match="4 requests are waiting") as refusal:
            submit(service, a_request())
        assert refusal.value.retry_after >= 1
        await asyncio.to_thread(gate.reached.wait, 30)
        assert (service.running, service.waiting) == (1, 4)
        gate.open()
        await asyncio.gather(*(collect(stream) for stream in streams))
        await collect(submit(service, a_request()))


async def test_aborted_requests_leave_room_for_others() -> None:
    runner = ScriptedRunner()
    gate = Gate(runner)
    async with serving(runner, EngineConfig(lanes=1, max_waiting=1)) as service:
        streams = [submit(service, a_request(max_tokens=30, ignore_eos=True)) for _ in range(2)]
        for stream in streams:
            await stream.aclose()
        gate.open()
        await until_idle(service)
        _, finish = await collect(submit(service, a_request(max_tokens=3, ignore_eos=True)))
        assert finish.completion_tokens == 3


async def test_leaving_a_stream_early_stops_the_work() -> None:
    runner = ScriptedRunner(n_blocks=5000, context_length=20_000)
    async with serving(runner) as service:
        async with submit(service, a_request(max_tokens=None, ignore_eos=True)) as stream:
            await anext(stream)
        await until_idle(service)
        assert len(runner.batches) < 19_000


async def test_nothing_is_taken_before_the_start_or_after_the_stop() -> None:
    service = EngineService(ScriptedRunner(), letter_tokenizer(), EngineConfig())
    with pytest.raises(EngineNotReadyError):
        submit(service, a_request())
    service.start()
    await service.stop(drain_seconds=0)
    with pytest.raises(EngineNotReadyError):
        submit(service, a_request())


async def test_a_service_that_never_started_can_be_stopped() -> None:
    runner = ScriptedRunner()
    await EngineService(runner, letter_tokenizer(), EngineConfig()).stop(drain_seconds=1)
    assert runner.closed


async def test_a_stop_lets_accepted_requests_finish() -> None:
    runner = ScriptedRunner()
    gate = Gate(runner)
    async with serving(runner, EngineConfig(lanes=1)) as service:
        streams = [submit(service, a_request(max_tokens=9, ignore_eos=True)) for _ in range(3)]
        stopping = asyncio.ensure_future(service.stop(drain_seconds=30))
        await asyncio.sleep(0)
        with pytest.raises(EngineNotReadyError):
            submit(service, a_request())
        gate.open()
        await stopping
        finishes = [(await collect(stream))[1] for stream in streams]
        assert [finish.completion_tokens for finish in finishes] == [9, 9, 9]


async def test_a_stop_ends_what_outlasts_the_drain() -> None:
    runner = ScriptedRunner(n_blocks=5000, context_length=20_000)
    async with serving(runner, EngineConfig(lanes=1)) as service:
        running = submit(service, a_request(max_tokens=None, ignore_eos=True))
        waiting = submit(service, a_request(max_tokens=None, ignore_eos=True))
        first = await anext(running)
        await service.stop(drain_seconds=0.01)
        assert isinstance(first, TextEvent)
        for stream in (running, waiting):
            with pytest.raises(EngineNotReadyError, match="The server is stopping"):
                await collect(stream)
        assert not service._thread.is_alive()


async def test_a_second_stop_cuts_the_drain_short() -> None:
    runner = ScriptedRunner(n_blocks=5000, context_length=20_000)
    async with serving(runner) as service:
        stream = submit(service, a_request(max_tokens=None, ignore_eos=True))
        await anext(stream)
        patient = asyncio.ensure_future(service.stop(drain_seconds=3600))
        await asyncio.sleep(0)
        await service.stop(drain_seconds=0)
        await asyncio.wait_for(patient, 30)
        assert runner.closed


async def test_a_fault_of_the_runner_is_raised_from_the_stream_and_the_next_request_is_served() -> None:
    runner = ScriptedRunner()

    def fail_once(batch: Sequence[SequenceRows]) -> None:
        runner.before_run = lambda batch: None
        raise MemoryError("no room")

    runner.before_run = fail_once
    async with serving(runner) as service:
        with pytest.raises(EngineFaultError):
            await collect(submit(service, a_request()))
        _, finish = await collect(submit(service, a_request(max_tokens=3, ignore_eos=True)))
        assert finish.completion_tokens == 3


async def test_an_idle_engine_uses_no_processor_time() -> None:
    async with serving(ScriptedRunner()) as service:
        await collect(submit(service, a_request()))
        await until_idle(service)
        await asyncio.sleep(0.1)  # from the last event to falling asleep
        clock = time.pthread_getcpuclockid(service._thread.ident or 0)
        before = time.clock_gettime(clock)
        await asyncio.sleep(0.2)
        assert time.clock_gettime(clock) == before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_no_reader_waits_for_an_engine_that_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError("a fault outside any request")

    async with serving(ScriptedRunner()) as service:
        monkeypatch.setattr(service._scheduler, "schedule", broken)
        with pytest.raises(EngineFaultError, match="restart the server"):
            await collect(submit(service, a_request()))
        service._thread.join(30)
        with pytest.raises(EngineNotReadyError, match="restart the server"):
            submit(service, a_request())


def test_an_event_loop_that_closed_first_does_not_break_the_engine() -> None:
    runner = ScriptedRunner()
    gate = Gate(runner)
    services = []

    async def leave() -> None:
        service = EngineService(runner, letter_tokenizer(), EngineConfig())
        service.start()
        submit(service, a_request(max_tokens=3, ignore_eos=True))
        services.append(service)

    asyncio.run(leave())
    gate.open()
    asyncio.run(services[0].stop(drain_seconds=0))
    assert runner.closed and not services[0]._thread.is_alive()


async def test_several_requests_are_admitted_together_or_not_at_all() -> None:
    runner = ScriptedRunner()
    gate = Gate(runner)
    async with serving(runner, EngineConfig(lanes=1, max_waiting=3)) as service:
        group = service.submit(*(a_request((n,), max_tokens=2, ignore_eos=True) for n in (1, 2, 3)))
        with pytest.raises(QueueFullError):
            service.submit(a_request(), a_request())
        with pytest.raises(ContextLengthError):
            service.submit(a_request(), a_request((1,) * 64))
        with pytest.raises(RequestError, match="5 answers at once are more than the 4"):
            service.submit(*(a_request() for _ in range(5)))
        assert service.status().waiting + len(service.status().running) == 3
        gate.open()
        finishes = [(await collect(stream))[1] for stream in group]
        assert [finish.completion_tokens for finish in finishes] == [2, 2, 2]


@pytest.mark.parametrize(
    ("param", "fields", "sampling"),
    [
        ("logit_bias", {}, {"logit_bias": ((1, 1.0), (VOCAB_SIZE, 1.0))}),
        ("allowed_token_ids", {}, {"allowed_tokens": (-1, 3)}),
        ("bad_words", {}, {"banned_sequences": ((1,), (2, 99))}),
        ("stop_token_ids", {"stop_tokens": frozenset({99})}, {}),
    ],
)
async def test_every_token_id_of_a_request_must_be_in_the_vocabulary(
    param: str, fields: dict[str, Any], sampling: dict[str, Any]
) -> None:
    async with serving(ScriptedRunner()) as service:
        with pytest.raises(RequestError, match=f"{param} holds token id .*; ids of this model are 0 to 31") as refusal:
            service.submit(a_request(**fields, sampling=Sampling(**sampling)))
        assert refusal.value.param == param


async def test_the_status_tells_who_runs_and_who_waits() -> None:
    runner = ScriptedRunner(n_blocks=16, block_tokens=4)
    gate = Gate(runner)
    async with serving(runner, EngineConfig(lanes=2)) as service:
        assert service.status() == EngineStatus(lanes=2, running=(), waiting=0, blocks=16, free_blocks=16)
        streams = service.submit(*(a_request((1, 2, 3), max_tokens=6, name=f"r{n}") for n in range(3)))
        await asyncio.to_thread(gate.reached.wait, 30)
        status = service.status()
        assert status.running == (LaneStatus("r0", 3, 0, 0), LaneStatus("r1", 3, 0, 0))
        assert (status.waiting, status.free_blocks) == (1, 14)  # blocks are taken as they are needed
        gate.open()
        await asyncio.gather(*(collect(stream) for stream in streams))
        await until_idle(service)
        assert service.status().free_blocks == 16


async def test_observers_hear_of_every_step_in_the_event_loop_s_thread() -> None:
    reports = list[StepReport]()
    threads = set[int]()

    def observe(report: StepReport) -> None:
        reports.append(report)
        threads.add(threading.get_ident())

    async with serving(ScriptedRunner(), EngineConfig(prefill_rows=2)) as service:
        service.observers.append(observe)
        await collect(submit(service, a_request((1, 2, 3, 4, 5), max_tokens=3, ignore_eos=True)))
    assert [(report.prefill_rows, report.decode_rows) for report in reports] == [(2, 0), (2, 0), (1, 0), (0, 1), (0, 1)]
    assert threads == {threading.get_ident()}


async def test_a_deadline_is_kept_by_the_real_clock() -> None:
    runner = ScriptedRunner(n_blocks=5000, context_length=20_000)
    async with serving(runner, EngineConfig(lanes=1)) as service:
        endless = submit(service, a_request(max_tokens=None, ignore_eos=True, max_seconds=0.2))
        waiting = submit(service, a_request(max_seconds=0.0))
        _, late = await collect(waiting)
        _, finish = await collect(endless)
        assert finish.stop == late.stop == "deadline"
        assert finish.reason is late.reason is FinishReason.LENGTH
        assert late.completion_tokens == 0 < finish.completion_tokens


async def test_a_prompt_is_scored_without_an_answer() -> None:
    async with serving(ScriptedRunner()) as service:
        text, finish = await collect(submit(service, a_request((1, 2, 3), max_tokens=0, prompt_logprobs=0)))
    assert (text, finish.reason, finish.completion_tokens) == ("", FinishReason.LENGTH, 0)
    assert [entry and entry.token for entry in finish.prompt_logprobs] == [None, 2, 3]
