"""Time that is up ends a request with what it has."""

from engine.api.config import EngineConfig
from engine.api.request import FinishReason
from tests.engine.scheduling.loop_bench import Bench, finish_of
from tests.engine.scripted import ScriptedRunner, a_request, letters, script

TWO_BLANKS = 31


def test_a_deadline_ends_an_answer_with_its_next_token() -> None:
    now = 1000.0
    bench = Bench(clock=lambda: now)
    heard, mate = (bench.submit(a_request((n,), ignore_eos=True, max_seconds=s)) for n, s in ((1, 5.0), (2, None)))
    for _ in range(3):
        bench.step()
    assert len(heard.items) == 3
    now += 5
    bench.step()
    finish = finish_of(heard)
    assert (finish.reason, finish.stop, finish.completion_tokens) == (FinishReason.LENGTH, "deadline", 4)
    bench.finish()
    assert finish_of(mate).completion_tokens == 8 and finish_of(mate).stop is None


def test_a_deadline_counts_while_a_request_waits_and_while_its_prompt_is_computed() -> None:
    now = 1000.0
    bench = Bench(config=EngineConfig(lanes=1, prefill_rows=2), clock=lambda: now)
    prefilling = bench.submit(a_request((1,) * 20, max_seconds=5.0))
    waiting = bench.submit(a_request(max_seconds=5.0))
    patient = bench.submit(a_request(max_seconds=500.0, max_tokens=1))
    bench.step()
    now += 6
    bench.step()
    for heard in (prefilling, waiting):
        finish = finish_of(heard)
        assert (finish.reason, finish.stop, finish.completion_tokens) == (FinishReason.LENGTH, "deadline", 0)
    assert bench.scheduler.running == [patient.job.sequence]
    bench.finish()
    assert finish_of(patient).completion_tokens == 1 and not bench.loop._timed


def test_a_deadline_counts_while_a_request_waits_after_preemption_and_no_further_token_is_drawn() -> None:
    now = 1000.0
    runner = ScriptedRunner(n_blocks=8, block_tokens=4)
    bench = Bench(runner, EngineConfig(lanes=2, speculation="off"), clock=lambda: now)
    mate = bench.submit(a_request(letters("abcd"), max_tokens=24, ignore_eos=True))
    timed = bench.submit(a_request(letters("bcda"), max_tokens=24, ignore_eos=True, max_seconds=5.0))
    while timed.job.sequence.standing.preemptions == 0:
        bench.step()
    assert timed.job.sequence in bench.scheduler.waiting
    said = len(timed.tokens)
    now += 6
    bench.step()
    finish = finish_of(timed)
    assert (finish.reason, finish.stop, finish.preemptions) == (FinishReason.LENGTH, "deadline", 1)
    assert finish.completion_tokens == len(timed.tokens) == said > 0
    bench.finish()
    assert finish_of(mate).completion_tokens == 24


def test_a_deadline_counts_while_a_preempted_answer_is_computed_again() -> None:
    now = 1000.0
    runner = ScriptedRunner(n_blocks=8, block_tokens=4)
    bench = Bench(runner, EngineConfig(lanes=2, prefill_rows=2, speculation="off"), clock=lambda: now)
    mate = bench.submit(a_request(letters("abcd"), max_tokens=24, ignore_eos=True))
    timed = bench.submit(a_request(letters("bcda"), max_tokens=24, ignore_eos=True, max_seconds=5.0))
    sequence = timed.job.sequence
    while not (sequence.standing.preemptions and sequence in bench.scheduler.running):
        bench.step()
    said, now = len(timed.tokens), now + 6
    assert sequence.pending > 1 and finish_of(mate)
    bench.step()
    assert (finish_of(timed).stop, finish_of(timed).completion_tokens) == ("deadline", said)
    bench.finish()


def test_text_that_was_held_back_comes_with_the_end_of_a_request_that_waits() -> None:
    now = 1000.0
    runner = ScriptedRunner(n_blocks=8, block_tokens=4)
    runner.logits_of = script(4, [TWO_BLANKS] * 24)
    bench = Bench(runner, EngineConfig(lanes=2, speculation="off"), clock=lambda: now)
    bench.submit(a_request(letters("abcd"), max_tokens=24, ignore_eos=True))
    timed = bench.submit(a_request(letters("bcda"), max_tokens=24, stop=(" a",), max_seconds=5.0))
    while timed.job.sequence.standing.preemptions == 0:
        bench.step()
    tokens = timed.job.sequence.new_tokens
    now += 6
    bench.step()
    assert timed.text == "  " * tokens and len(timed.tokens) == tokens
    assert finish_of(timed).stop == "deadline"
    bench.finish()
