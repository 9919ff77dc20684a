"""The final hidden states that a run gives beside logits: right, with the same bits however fed, and at no cost."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.loading.runner import Runner
from engine.run.runner_protocol import SequenceRows
from tests.engine.runners import feed, loaded, random_tokens, same_bits
from tests.reference.llama import ReferenceLlama
from tests.tiny.models import write_tiny_llama


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("model") / "tiny.gguf", seed=3)


@pytest.fixture(scope="module")
def runner(model: Path) -> Iterator[Runner]:
    with loaded(model, rows=64, kv_type="f32", activations="f32") as runner:
        yield runner


def test_they_are_those_of_the_reference(model: Path, runner: Runner) -> None:
    tokens = random_tokens(runner, 40, seed=1)
    runner.run([SequenceRows(tokens, 0, ([0],), 0, final_rows=range(40))])
    expected = ReferenceLlama(model).final(tokens)
    assert runner.final.dtype == np.float32
    assert np.abs(runner.final - expected).max() < 1e-4


def test_they_come_in_the_order_of_the_batch_for_the_rows_that_want_them(runner: Runner) -> None:
    tokens = [random_tokens(runner, 9, seed=seed) for seed in range(3)]
    alone = []
    for each in tokens:
        runner.run([SequenceRows(each, 0, ([0],), 0, final_rows=range(9))])
        alone.append(runner.final.copy())
    wanted = [range(2, 5), range(0), range(8, 9)]
    batch = [SequenceRows(tokens[i], 0, ([i],), int(i == 1), final_rows=wanted[i]) for i in range(3)]
    assert runner.run(batch).shape == (1, runner.vocab_size)
    assert same_bits(runner.final, np.concatenate([alone[0][2:5], alone[2][8:9]]))


def test_chunks_change_no_bit(runner: Runner) -> None:
    tokens = random_tokens(runner, 60, seed=2)
    runner.run([SequenceRows(tokens, 0, ([0],), 0, final_rows=range(60))])
    whole, parts = runner.final.copy(), []
    for start in range(0, 60, 7):
        piece = tokens[start : start + 7]
        runner.run([SequenceRows(piece, start, ([1],), 0, final_rows=range(len(piece)))])
        parts.append(runner.final.copy())
    assert same_bits(np.concatenate(parts), whole)


def test_logits_beside_them_keep_their_bits(runner: Runner) -> None:
    tokens = random_tokens(runner, 30, seed=4)
    expected = feed(runner, tokens, [0], chunk=64)[-1:]
    others = [SequenceRows(random_tokens(runner, 9, seed=5), 0, ([1],), 0, final_rows=range(9))]
    assert same_bits(runner.run([*others, SequenceRows(tokens, 0, ([2],), 1)]), expected)


def test_a_run_that_wants_none_gives_none(runner: Runner) -> None:
    runner.run([SequenceRows([1, 2], 0, ([0],), 1, final_rows=range(1))])
    runner.run([SequenceRows([1, 2], 0, ([0],), 1)])
    assert runner.final.shape == (0, 64)
