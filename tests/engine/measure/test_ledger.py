"""The ledger: its lines make the step, and taking it changes no bit."""

from collections.abc import Iterator

import numpy as np
import pytest

from engine.loading.runner import Runner
from engine.measure.ledger import Entry, Ledger
from engine.run.runner_protocol import SequenceRows
from tests.engine.runners import loaded, same_bits
from tests.tiny.models import write_tiny_llama

STEP = [SequenceRows([5, 17, 250], 0, ([0],), 1)]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    path = write_tiny_llama(tmp_path_factory.mktemp("model") / "tiny.gguf", types="Q8_0", layers=3)
    with loaded(path, threads=2) as runner:
        yield runner


def test_the_lines_sum_to_the_step_and_count_every_op(runner: Runner) -> None:
    with Ledger(runner) as ledger:
        for _ in range(3):
            ledger.step(lambda: runner.run(STEP))
    entries = ledger.entries()
    assert sum(entry.total for entry in entries) == pytest.approx(ledger.step_ms)
    assert sum(entry.ops for entry in entries) == len(runner.op_names)
    assert [entry.total for entry in entries] == sorted((entry.total for entry in entries), reverse=True)
    named = {entry.name: entry for entry in entries}
    assert named["python"].ops == named["embedding"].ops == 0 and named["embedding"].work > 0
    assert named["python"].total == pytest.approx((1 - ledger.coverage) * ledger.step_ms)
    assert 0 < ledger.coverage < 1


def test_ops_of_all_layers_are_one_line(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"matmul blk.{i % 3}.attn_q.weight Q8_0 64x64" for i in range(len(runner.op_names) - 1)] + ["head"]
    monkeypatch.setattr(runner, "op_names", names)
    with Ledger(runner) as ledger:
        ledger.step(lambda: runner.run(STEP))
    assert {entry.name: entry.ops for entry in ledger.entries()} == {
        "matmul attn_q.weight Q8_0 64x64": len(names) - 1,
        "head": 1,
        "embedding": 0,
        "python": 0,
    }


def test_a_ledger_changes_no_bit_and_leaves_nothing_behind(runner: Runner) -> None:
    before, look_up = runner.run(STEP).copy(), runner.embed
    with Ledger(runner) as ledger:
        results: list[np.ndarray] = []
        ledger.step(lambda: results.append(runner.run(STEP).copy()))
    assert same_bits(results[0], before)
    assert runner.op_times is None and runner.embed == look_up
    assert same_bits(runner.run(STEP), before)


def test_warm_up_steps_are_forgotten(runner: Runner) -> None:
    with Ledger(runner) as ledger:
        ledger.step(lambda: [runner.run(STEP) for _ in range(40)])
        long = ledger.step_ms
        ledger.forget()
        ledger.step(lambda: runner.run(STEP))
    assert sum(entry.total for entry in ledger.entries()) == pytest.approx(ledger.step_ms)
    assert ledger.step_ms < long


def test_a_matmul_knows_its_bytes_and_operations_by_its_name() -> None:
    entry = Entry(name="matmul attn_q.weight Q4_K 2048x512", ops=16, work=1.0, wait=0.5)
    assert entry.kind == "matmul" and entry.total == 1.5
    assert entry.bytes_read(rows=8) == 16 * 2048 * 512 // 256 * 144
    assert entry.operations(rows=8) == 2 * 8 * 16 * 2048 * 512
    norm = Entry(name="norm attn_norm.weight", ops=16, work=1.0, wait=0.5)
    assert norm.bytes_read(rows=8) is None and norm.operations(rows=8) is None


def test_the_experts_of_a_step_are_those_that_its_rows_go_to() -> None:
    entry = Entry(name="experts ffn_up_exps.weight Q8_0 2/6 512x2048", ops=4, work=1.0, wait=0.5)
    matrix = 4 * 512 * 2048 // 32 * 34
    assert entry.bytes_read(rows=1) == pytest.approx(2 * matrix)
    assert entry.bytes_read(rows=2) == pytest.approx(6 * matrix * (1 - (4 / 6) ** 2))
    assert entry.operations(rows=8) == 2 * 8 * 2 * 4 * 512 * 2048
