"""A fault in one request ends that one only; its neighbours do not notice."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.api.config import EngineConfig
from engine.errors import EngineFaultError, RequestError
from engine.run.runner_protocol import SequenceRows
from engine.run.status import StepReport
from engine.scheduling.loop import Delivery
from tests.engine.scheduling.loop_bench import Bench, alone, essence, finish_of, is_fault
from tests.engine.scripted import VOCAB_SIZE, ScriptedRunner, a_request, hashed_logits
from tests.engine.text.constraints.grammars import Broken, Nothing, Words


def test_a_fault_that_does_not_come_back_ends_no_request(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(config=EngineConfig(lanes=2))
    heard = [bench.submit(a_request((n,), name=f"r{n}")) for n in (1, 2, 3)]

    def fail_once(batch: Sequence[SequenceRows]) -> None:
        bench.runner.before_run = lambda batch: None
        raise ZeroDivisionError("broken step")

    bench.runner.before_run = fail_once
    bench.finish()
    for one in heard:
        assert essence(one.items) == essence(alone(one.job.sequence.request))
    assert "a step of 2 requests failed" in caplog.text and "broken step" in caplog.text


@pytest.mark.parametrize("fault_step", range(1, 9))
def test_a_request_that_breaks_the_runner_ends_alone_whatever_the_step(
    fault_step: int, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(config=EngineConfig(lanes=4))
    poison = a_request((30, 30, 30), ignore_eos=True, name="poison")
    requests = [a_request((n, n, n), ignore_eos=True, name=f"r{n}") for n in (1, 2)]
    heard = [bench.submit(request) for request in (requests[0], poison, requests[1])]
    broken = heard[1].job.sequence

    def break_on_poison(batch: Sequence[SequenceRows]) -> None:
        if broken.new_tokens == fault_step - 1 and any(rows.block_tables is broken.held.tables for rows in batch):
            raise MemoryError("no room")

    bench.runner.before_run = break_on_poison
    bench.finish()
    assert is_fault(heard[1]) and len(heard[1].items) == fault_step
    assert "fault while serving poison" in caplog.text
    for one in (heard[0], heard[2]):
        assert essence(one.items) == essence(alone(one.job.sequence.request))


def test_logits_of_the_wrong_count_are_a_fault_of_the_runner() -> None:
    bench = Bench()
    heard = bench.submit(a_request())
    bench.runner.run = lambda batch, meanwhile=None: np.zeros((2, VOCAB_SIZE), np.float32)  # type: ignore[method-assign]
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


def test_a_broken_or_hopeless_grammar_ends_its_request_alone() -> None:
    bench = Bench()
    heard = [
        bench.submit(a_request((n,), ignore_eos=True, constraint=constraint))
        for n, constraint in enumerate((None, Broken(), Nothing(), Words("ab")), 1)
    ]
    bench.finish()
    assert is_fault(heard[1]) and str(heard[1].last).startswith("The server failed on this request")
    assert isinstance(heard[2].last, RequestError) and "leave no token" in str(heard[2].last)
    assert heard[3].text == "ab"
    assert essence(heard[0].items) == essence(alone(heard[0].job.sequence.request))


def test_an_error_of_the_client_s_is_one_warning_and_its_blocks_stay_cached(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    prompt = tuple(range(1, 3 * bench.runner.block_tokens + 2))
    heard = bench.submit(a_request(prompt, constraint=Nothing(), name="hopeless"))
    bench.finish()
    assert isinstance(heard.last, RequestError)
    (record,) = caplog.records
    assert record.levelname == "WARNING" and record.exc_info is None and "hopeless" in record.getMessage()
    again = bench.submit(a_request(prompt))
    bench.finish()
    assert finish_of(again).cached_tokens == 3 * bench.runner.block_tokens


def test_a_fault_in_publishing_is_no_fault_of_a_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the loop, since events may be lost, and isolates nobody; the streams still hear how it ended."""
    bench = Bench(config=EngineConfig(lanes=3, speculation="off"))
    heard = [bench.submit(a_request((n,), max_tokens=20, ignore_eos=True)) for n in (1, 2)]
    for _ in range(3):
        bench.step()

    def broken(batch: list[Delivery], report: StepReport | None) -> None:
        monkeypatch.undo()
        raise OSError("no wire")

    bench.loop.step()
    monkeypatch.setattr(bench.loop, "_deliver", broken)
    with pytest.raises(OSError, match="no wire"):
        bench.loop.run()
    assert not any(one.job.sequence.standing.alone_until for one in heard)
    assert all(is_fault(one) and len(one.tokens) == 4 for one in heard)
    assert bench.memory.free_blocks == bench.memory.blocks and not bench.loop.status.running


@pytest.mark.parametrize("place", ["attach", "catch_up", "reach", "chunk_end", "grow", "advance", "choose", "score"])
def test_no_memory_at_any_point_of_a_request_s_way_ends_that_request_only(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call on the way of three requests fails in its turn: one ends, the others say what they say alone."""
    requests = [a_request((n,) * 6, ignore_eos=True, logprobs=1, name=f"r{n}") for n in (1, 2, 3)]
    expected = [essence(alone(request)) for request in requests]
    for call in range(1, 1000):
        bench = Bench(ScriptedRunner(n_blocks=10), EngineConfig(lanes=3))
        owner, name = {"choose": (bench.loop._sampler, "choose"), "score": (bench.loop._sampler, "logprob")}.get(
            place, (bench.memory, place)
        )
        failing = Failing(getattr(owner, name), call)
        monkeypatch.setattr(owner, name, failing)
        heard = [bench.submit(request) for request in requests]
        bench.finish()
        faults = [is_fault(one) for one in heard]
        assert sum(faults) == (failing.calls >= call)
        for one, answer, is_broken in zip(heard, expected, faults, strict=True):
            assert is_broken or essence(one.items) == answer
        if not any(faults):
            assert call > 3
            return


class Failing:
    """A function whose n-th call finds no memory."""

    def __init__(self, function: Callable[..., Any], n: int) -> None:
        self._function, self._n, self.calls = function, n, 0

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        if self.calls == self._n:
            raise MemoryError("no room")
        return self._function(*args)


@pytest.mark.parametrize("states", [0, 3, 6])
@pytest.mark.parametrize("fault_step", range(1, 12))
def test_a_step_that_breaks_halfway_leaves_no_trace(fault_step: int, states: int) -> None:
    """Some sequences of the step were computed, and their states have moved on; each is computed again, alone."""
    runner = ScriptedRunner(state_slots=states)
    bench = Bench(runner, EngineConfig(lanes=3, prefill_rows=8))
    requests = [a_request((n,) * (4 * n + 1), ignore_eos=True, name=f"r{n}") for n in (1, 2, 3)]
    heard = [bench.submit(request) for request in requests]
    real, steps = runner.run, 0

    def halfway(batch: Sequence[SequenceRows], meanwhile: Callable[[], None] | None = None) -> NDArray[np.float32]:
        nonlocal steps
        steps += 1
        logits = real(batch if steps != fault_step else batch[: len(batch) // 2 + 1], meanwhile)
        if steps == fault_step and len(batch) > 1:
            raise ZeroDivisionError("broken halfway")
        return logits

    runner.run = halfway  # type: ignore[method-assign]
    bench.finish()
    for one in heard:
        assert essence(one.items) == essence(alone(one.job.sequence.request))
