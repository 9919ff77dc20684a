"""The divergence of logits."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.divergence import describe, divergence


def test_the_divergence_of_a_worked_example() -> None:
    half, quarter = np.log([[0.5, 0.5]]), np.log([[0.25, 0.75]])
    found = divergence(half.astype(np.float32), quarter.astype(np.float32) + np.float32(7))
    assert found == pytest.approx([0.5 * np.log(2) + 0.5 * np.log(2 / 3)], rel=1e-5)


def test_equal_logits_do_not_diverge() -> None:
    logits = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
    assert divergence(logits, logits + np.float32(0)).tolist() == [0] * 5


def test_a_row_sums_up_the_tokens() -> None:
    reference = np.array([[0, 3], [3, 0], [0, 1]], np.float32)
    found = np.array([[0, 3], [0, 3], [0, 1]], np.float32)
    row = describe("octavo", Path("folder/m.gguf"), reference, found)
    assert (row["model"], row["engine"], row["tokens"]) == ("m.gguf", "octavo", 3)
    largest = 3 * (1 / (1 + np.exp(-3)) - 1 / (1 + np.exp(3)))
    assert row["largest"] == pytest.approx(largest, rel=1e-6) and row["mean"] == pytest.approx(largest / 3, rel=1e-6)
    assert row["same_top"] == pytest.approx(2 / 3)
