"""The engine's loop, driven step by step without its thread."""

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.api.config import EngineConfig
from engine.api.request import FinishReason, Request, Thinking
from engine.api.sampling import Sampling
from engine.run.event_stream import EventStream
from engine.run.runner_protocol import SequenceRows
from tests.engine.scheduling.loop_bench import Bench, Heard, alone, essence, finish_of, is_fault
from tests.engine.scripted import VOCAB_SIZE, ScriptedRunner, a_request, letters, script
from tests.engine.text.constraints.grammars import Hashed


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
    sampling = Sampling(
        temperature=0 if greedy else rng.choice([0.5, 1.0, 1.5]),
        top_k=rng.choice([0, 5]),
        top_p=rng.choice([1.0, 0.9]),
        min_p=rng.choice([0.0, 0.02]),
        seed=rng.randrange(2**40),
        frequency_penalty=rng.choice([0.0, 0.0, 0.4]),
        presence_penalty=rng.choice([0.0, 0.0, -0.3]),
        repetition_penalty=rng.choice([1.0, 1.0, 1.2]),
        logit_bias=rng.choice([(), ((3, -100.0), (9, 2.5))]),
        allowed_tokens=rng.choice([None, None, tuple(range(20))]),
        banned_sequences=rng.choice([(), ((4,), (5, 6))]),
    )
    thinking = Thinking(inside=rng.random() < 0.5, start_id=8, end_ids=(9, 10), budget=rng.randint(0, 6))
    return a_request(
        tuple(rng.randrange(1, VOCAB_SIZE) for _ in range(rng.randint(1, 30))),
        max_tokens=rng.randint(1, 30),
        stop=rng.choice([(), ("ab", "e"), ("x",)]),
        ignore_eos=rng.random() < 0.3,
        name=f"r{number}",
        sampling=sampling,
        choice=rng.randrange(3),
        min_tokens=rng.choice([0, 0, 5]),
        marks=rng.choice([frozenset(), frozenset({9, 11})]),
        logprobs=rng.choice([None, 0, 3]),
        prompt_logprobs=rng.choice([None, None, 2]),
        thinking=rng.choice([None, thinking]),
        constraint=Hashed(number) if sampling.allowed_tokens is None and rng.random() < 0.2 else None,
    )


@pytest.mark.parametrize("seed", range(25))
def test_neighbours_arrivals_and_aborts_change_no_event_of_a_request(seed: int) -> None:
    rng = random.Random(seed)
    config = EngineConfig(
        lanes=rng.randint(1, 6),
        prefill_rows=rng.randint(1, 40),
        knee_rows=rng.randint(1, 10),
        itl_target_ms=rng.choice([None, 1e-6]),
        prefill_interval=rng.randint(1, 4),
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
        held = {block for sequence in bench.scheduler.running for block in sequence.held.tables[0]}
        assert len(held) == bench.memory.blocks - bench.memory.free_blocks
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


def test_the_finish_says_what_stopped_the_answer() -> None:
    bench = Bench()
    bench.runner.logits_of = script(3, letters("abcdefgh"))
    for fields, stop in (({"stop": ("cd",)}, "cd"), ({"stop_tokens": frozenset({5})}, 5), ({"max_tokens": 2}, None)):
        heard = bench.submit(a_request(**fields))
        bench.finish()
        assert finish_of(heard).stop == stop


def test_steps_are_reported_with_their_rows() -> None:
    bench = Bench(config=EngineConfig(prefill_rows=4))
    bench.submit(a_request((1,) * 6, max_tokens=3, ignore_eos=True))
    bench.step()
    bench.submit(a_request((2, 2), max_tokens=2, ignore_eos=True))
    bench.finish()
    rows = [(report.prefill_rows, report.decode_rows, report.sequences) for report in bench.reports]
    assert rows == [(4, 0, 1), (4, 0, 2), (0, 2, 2), (0, 1, 1)]
    assert all(report.seconds > 0 for report in bench.reports)


def test_mean_lanes_counts_who_shared_the_decode_steps() -> None:
    bench = Bench()
    short = bench.submit(a_request(max_tokens=3, ignore_eos=True))
    long = bench.submit(a_request(max_tokens=5, ignore_eos=True))
    single = bench.submit(a_request(max_tokens=1, ignore_eos=True))
    bench.finish()
    assert [finish_of(heard).timings.mean_lanes for heard in (short, long, single)] == [2.0, 1.5, 1.0]


def test_a_step_is_published_while_the_next_is_computed_and_the_last_at_once() -> None:
    bench = Bench()
    heard = bench.submit(a_request(max_tokens=2, ignore_eos=True))
    told: list[list[int]] = []
    run = bench.runner.run

    def watched(batch: Sequence[SequenceRows], meanwhile: Callable[[], None] | None = None) -> NDArray[np.float32]:
        told.append([len(heard.items)])
        logits = run(batch, meanwhile)
        told[-1].append(len(heard.items))
        return logits

    bench.runner.run = watched  # type: ignore[method-assign]
    bench.loop._take_commands()
    for _ in range(2):
        bench.loop.step()
    assert told == [[0, 0], [0, 1]]
    assert len(heard.tokens) == 2 and finish_of(heard).reason is FinishReason.LENGTH
    assert len(bench.reports) == 2


def test_the_status_that_a_step_told_is_changed_by_no_later_step() -> None:
    bench = Bench(config=EngineConfig(lanes=2, speculation="off"))
    for number in (1, 2, 3):
        bench.submit(a_request((number, number), max_tokens=6, ignore_eos=True, name=f"r{number}"))
    told = []
    for _ in range(3):
        bench.step()
        told.append(bench.loop.status)
    assert [[lane.id for lane in status.running] for status in told] == [["r1", "r2"]] * 3
    assert [status.running[0].generated_tokens for status in told] == [0, 1, 2]
    assert [status.waiting for status in told] == [1, 1, 1]
    bench.finish()
    assert not bench.loop.status.running and bench.loop.status.free_blocks == bench.memory.blocks


def test_what_a_step_has_for_readers_comes_though_the_next_one_breaks() -> None:
    bench = Bench()
    heard = bench.submit(a_request(ignore_eos=True))
    bench.loop._take_commands()
    bench.loop.step()

    def broken(batch: Sequence[SequenceRows]) -> None:
        raise ZeroDivisionError("broken before anything runs")

    bench.runner.before_run = broken
    bench.loop.step()
    assert len(heard.tokens) == 1 and is_fault(heard)
