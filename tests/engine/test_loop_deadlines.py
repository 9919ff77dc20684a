"""Time that is up ends a request with what it has."""

from engine.config import EngineConfig
from engine.request import FinishReason
from tests.engine.loop_bench import Bench, finish_of
from tests.engine.scripted import a_request


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
