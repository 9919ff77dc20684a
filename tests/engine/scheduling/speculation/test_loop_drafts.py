"""Drafts in the loop: where they stop, what they leave, what they do when something fails."""

from typing import Any

import numpy as np
import pytest

from engine.api.config import EngineConfig
from engine.api.request import FinishReason
from engine.api.sampling import Sampling
from engine.scheduling.speculation.speculation import Speculation
from tests.engine.scheduling.loop_bench import Bench, finish_of, is_fault
from tests.engine.scheduling.speculation.forced import always, force
from tests.engine.scripted import ScriptedRunner, a_request, letters, script

ON = EngineConfig()
PROMPT = letters("xyz")


def saying(text: str, marks: str = "rrrrrrr", config: EngineConfig = ON, **runner: Any) -> Bench:
    bench = Bench(ScriptedRunner(**runner), config)
    bench.runner.logits_of = script(len(PROMPT), [*letters(text), *[1] * 20])
    force(bench, {("r", 0): [*letters(text)]}, always(marks))
    return bench


def test_a_step_gives_all_right_drafts_and_one_more() -> None:
    bench = saying("abcdefghijklmnop")
    heard = bench.submit(a_request(PROMPT, max_tokens=16))
    bench.finish()
    assert heard.text == "abcdefghijklmnop"
    assert [rows for ((_, rows),) in bench.runner.batches] == [3, 8, 7]  # the last draft could not be fed
    finish = finish_of(heard)
    assert (finish.timings.drafted_tokens, finish.timings.accepted_tokens) == (13, 13)
    assert [(report.draft_rows, report.accepted_drafts) for report in bench.reports] == [(0, 0), (7, 7), (6, 6)]
    assert [report.decode_rows for report in bench.reports] == [0, 1, 1]


def test_wrong_drafts_cost_rows_and_change_nothing() -> None:
    bench = saying("abcdefgh", "wwwwwww")
    heard = bench.submit(a_request(PROMPT, max_tokens=8))
    bench.finish()
    assert heard.text == "abcdefgh" and len(bench.reports) == 8
    assert finish_of(heard).timings.accepted_tokens == 0


@pytest.mark.parametrize("at", range(1, 8))
def test_a_stop_string_in_the_middle_of_drafts_ends_the_answer_there(at: int) -> None:
    text = "abcdefghijkl"
    bench = saying(text)
    heard = bench.submit(a_request(PROMPT, max_tokens=12, stop=(text[at : at + 2],)))
    bench.finish()
    assert heard.text == text[:at] and finish_of(heard).reason is FinishReason.STOP
    assert finish_of(heard).completion_tokens == at + 2


def test_the_budgets_of_a_step_bound_the_drafts() -> None:
    bench = saying("abcdefghijklmnop", config=EngineConfig(lanes=2), max_logit_rows=8, max_rows=5)
    heard = bench.submit(a_request(PROMPT, max_tokens=16))
    bench.finish()
    assert heard.text == "abcdefghijklmnop"
    assert max(rows for ((_, rows),) in bench.runner.batches) == 5


def test_drafts_take_no_memory_that_another_needs() -> None:
    """Two sequences that fill all blocks: none has to give way for a draft."""
    bench = saying("abcdefgh", n_blocks=6, block_tokens=4)
    heard = [bench.submit(a_request(PROMPT, max_tokens=8, caller=bytes([n]))) for n in range(2)]
    bench.finish()
    assert [one.text for one in heard] == ["abcdefgh"] * 2
    assert [finish_of(one).preemptions for one in heard] == [0, 0]


def test_a_step_that_fails_with_drafts_is_repeated_without() -> None:
    bench = saying("abcdefgh")
    del bench.scheduler.speculation
    bench.scheduler.speculation = speculation = Speculation(ON, bench.scheduler.pace, None, 4)
    tried: list[int] = []

    def drafts(rooms, most, lanes):  # type: ignore[no-untyped-def]
        trusted = {s: room for s, room in rooms.items() if speculation._answer(s).is_trusted and room}
        tried.append(len(trusted))
        return dict.fromkeys(trusted, (5,))

    speculation.drafts = drafts  # type: ignore[method-assign]

    def fail_with_drafts(batch):  # type: ignore[no-untyped-def]
        if any(rows.logit_rows > 1 for rows in batch):
            raise RuntimeError("drafts break the model")

    bench.runner.before_run = fail_with_drafts
    heard = bench.submit(a_request(PROMPT, max_tokens=8))
    bench.finish()
    assert heard.text == "abcdefgh" and not is_fault(heard)
    assert sum(tried) == 1


def test_a_fault_in_a_drafted_row_ends_that_request_only() -> None:
    bench = saying("abcdefgh")
    usual = bench.runner.logits_of

    def logits_of(known: tuple[int, ...]) -> np.ndarray:
        logits = usual(known)
        return logits * np.nan if known[0] == 9 and len(known) == 6 else logits

    bench.runner.logits_of = logits_of
    broken = bench.submit(a_request((9, *PROMPT[1:]), max_tokens=8))
    sound = bench.submit(a_request(PROMPT, max_tokens=8))
    bench.finish()
    assert is_fault(broken) and broken.text == "abc"
    assert sound.text == "abcdefgh"


def test_a_drafter_that_fails_is_asked_no_more() -> None:
    bench = Bench(ScriptedRunner(), EngineConfig())
    speculation = bench.scheduler.speculation
    heard = bench.submit(a_request(PROMPT, max_tokens=8, ignore_eos=True))
    bench.step()

    class Broken:
        def guess(self, tokens: list[int], most: int):  # type: ignore[no-untyped-def]
            raise MemoryError

    answer = speculation._answer(heard.job.sequence)
    answer.drafters = [Broken()]
    bench.finish()
    assert not is_fault(heard) and len(heard.tokens) == 8 and not answer.is_trusted


def test_text_that_goes_round_is_speculated_upon_in_virtual_time() -> None:
    now = [0.0]
    runner = ScriptedRunner(context_length=512, n_blocks=200)

    def pass_time(batch):  # type: ignore[no-untyped-def]
        now[0] += 0.02 + 0.002 * sum(len(rows.tokens) for rows in batch)

    runner.before_run = pass_time
    runner.logits_of = lambda known: np.eye(32, dtype=np.float32)[1 + len(known) % 5]
    bench = Bench(runner, EngineConfig(), lambda: now[0])
    heard = bench.submit(a_request(PROMPT, max_tokens=200))
    bench.finish()
    assert len(heard.tokens) == 200 and len(bench.reports) < 60
    assert finish_of(heard).timings.accepted_tokens > 140


def test_a_prediction_is_counted_whatever_was_tried() -> None:
    found = []
    for config in (EngineConfig(speculation="off"), EngineConfig()):
        bench = Bench(ScriptedRunner(), config)
        bench.runner.logits_of = script(len(PROMPT), [*letters("abcdefgh"), *[1] * 20])
        heard = bench.submit(a_request(PROMPT, max_tokens=8, prediction=letters("abcdxxgh")))
        bench.finish()
        finish = finish_of(heard)
        found.append((finish.accepted_prediction_tokens, finish.rejected_prediction_tokens))
    assert found == [(4, 4), (4, 4)]


def test_a_predicted_answer_comes_in_fewer_steps() -> None:
    now = [0.0]
    text = letters("thequickbrownfoxjumpsoverthelazydog")
    bench = Bench(ScriptedRunner(), EngineConfig(), lambda: now[0])

    def pass_time(batch):  # type: ignore[no-untyped-def]
        now[0] += 0.02 + 0.002 * sum(len(rows.tokens) for rows in batch)

    bench.runner.before_run = pass_time
    bench.runner.logits_of = script(len(PROMPT), [*text, *[1] * 20])
    sampling = Sampling(temperature=0)
    heard = bench.submit(a_request(PROMPT, max_tokens=len(text), prediction=text, sampling=sampling))
    bench.finish()
    assert len(bench.reports) < 15
    assert finish_of(heard).accepted_prediction_tokens == len(text)
