"""Log probabilities against float64, and the likeliest tokens against a full sort."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels.sampling.logits import log_softmax, natural_logarithm
from kernels.sampling.sampling import BLOCK, sampling_scratch

Logits = NDArray[np.float32]


def log_softmax_of(logits: Logits, top: int = 0) -> tuple[float, float, list[tuple[int, float]]]:
    """The largest logit, the logarithm of the sum, and the likeliest tokens, id by id."""
    scratch = sampling_scratch(logits.size)
    peak, log_sum = log_softmax(logits, top, scratch)
    likeliest = zip(scratch.ids[:top].tolist(), scratch.scores[:top].tolist(), strict=True)
    return float(peak), float(log_sum), list(likeliest)


def reference_log_sum(logits: Logits) -> float:
    wide = logits.astype(np.float64)
    wide = wide[~np.isnan(wide)]
    return float(np.log(np.sum(np.exp(wide - wide.max()))))


@st.composite
def rows_of_logits(draw: Any) -> Logits:
    """Rows with ties, -inf and NaN, around the sizes of a block, and at least one finite logit."""
    size = draw(st.sampled_from([1, 2, 5, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7, 1000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if draw(st.booleans()):
        values = rng.choice([-math.inf, math.nan, -3.0, -0.0, 0.0, 1.5, 2.0], size)
    else:
        values = rng.normal(0, draw(st.sampled_from([0.1, 2.0, 30.0])), size)
    row: Logits = values.astype(np.float32)
    row[rng.integers(size)] = 2.0
    return row


@settings(max_examples=300, deadline=None)
@given(rows_of_logits())
def test_the_logarithm_of_the_sum_is_that_of_float64(logits: Logits) -> None:
    peak, log_sum, _ = log_softmax_of(logits)
    assert peak == np.nanmax(logits)
    assert log_sum == pytest.approx(reference_log_sum(logits), abs=5e-7)


@settings(max_examples=300, deadline=None)
@given(rows_of_logits(), st.integers(1, 40))
def test_the_likeliest_tokens_are_those_of_a_sort_with_ties_to_the_lower_id(logits: Logits, top: int) -> None:
    top = min(top, logits.size)
    values = [-math.inf if math.isnan(x) else float(x) for x in logits]
    ids = sorted(sorted(range(logits.size), key=lambda i: (-values[i], math.isnan(logits[i]), i))[:top])
    _, log_sum, likeliest = log_softmax_of(logits, top)
    assert [token for token, _ in likeliest] == ids
    assert np.array_equal([score for _, score in likeliest], logits[ids], equal_nan=True)
    assert log_sum == log_softmax_of(logits)[1]


def test_where_a_logit_lies_changes_no_bit_of_the_sum() -> None:
    rng = np.random.default_rng(2)
    logits = rng.normal(0, 3, 5000).astype(np.float32)
    sums = {log_softmax_of(rng.permutation(logits))[:2] for _ in range(5)}
    assert len(sums) == 1


def test_a_certain_token_has_a_logarithm_of_zero() -> None:
    logits = np.full(300, -1e4, np.float32)
    logits[7] = 3.0
    assert log_softmax_of(logits)[:2] == (3.0, 0.0)


@pytest.mark.parametrize("value", [math.nan, -math.inf, math.inf])
def test_a_row_without_a_finite_largest_logit_has_no_probabilities(value: float) -> None:
    assert math.isnan(log_softmax_of(np.full(300, value, np.float32), 3)[1])


def test_the_natural_logarithm_is_exact_to_two_roundings() -> None:
    x = np.concatenate([np.linspace(1, 3, 4001), np.exp(np.linspace(0, 14, 4001)), 2.0 ** np.arange(21)])
    exact = np.log(x)
    ours = np.array([natural_logarithm(value) for value in x])
    assert np.all(np.abs(ours - exact) <= 4e-16 * np.maximum(exact, 1e-3) + 4e-16 * exact)
    assert natural_logarithm(1.0) == 0.0
