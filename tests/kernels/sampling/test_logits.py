"""Ops on rows of logits: the likeliest token, logarithms of a softmax, and banned tokens."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels.build.jit import address, c_function
from kernels.run.program import Program
from kernels.sampling.logits import LIKELIEST, WORD, _natural_logarithm, ban_unset, likeliest_kernel, log_softmax
from kernels.sampling.sampling import BLOCK, argmax, sampling_scratch
from tests.kernels.ops import Float32, run_program

NONE_FOUND = -99


def likeliest(logits: Float32, vocabulary: int, rows: int, threads: int = 1) -> list[int]:
    """Run the op on the first `rows` rows of [rows, stride]; what it leaves alone is NONE_FOUND."""
    tokens, count, program = np.full(len(logits), NONE_FOUND), np.array([rows]), Program()
    program.emit(
        LIKELIEST,
        address(likeliest_kernel()),
        logits=logits.ctypes.data,
        stride=logits.shape[1],
        vocabulary=vocabulary,
        rows=count.ctypes.data,
        tokens=tokens.ctypes.data,
    )
    run_program(program.finish(), threads)
    return list(tokens.tolist())


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("vocabulary", [1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 1000, 49152])
def test_each_row_s_largest_logit_is_found_whatever_lies_behind_the_vocabulary(vocabulary: int, threads: int) -> None:
    rng = np.random.default_rng(vocabulary)
    logits = rng.standard_normal((9, -(-vocabulary // 16) * 16)).astype(np.float32)
    logits[:, vocabulary:] = 100
    found = likeliest(logits, vocabulary, 7, threads)
    assert found == [*logits[:7, :vocabulary].argmax(axis=1).tolist(), NONE_FOUND, NONE_FOUND]


def test_ties_infinities_and_what_is_no_number_are_as_the_sampler_has_them() -> None:
    rows = np.random.default_rng(1).integers(-3, 3, (40, 400)).astype(np.float32)  # of many ties
    rows[1::4, ::3] = math.nan
    rows[2::4, ::2] = -math.inf
    rows[3::4, 100:] = [[0.0, -0.0] * 150]
    rows[0], rows[1], rows[2, 399] = math.nan, -math.inf, math.inf
    expected = [argmax(row) for row in rows]
    assert expected[:3] == [-1, -1, 399]
    assert likeliest(rows, 400, 40) == expected
    assert expected[4:] == [int(np.nanargmax(row)) for row in rows[4:]]


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


@c_function("float64(float64)")
def logarithm(x: Any) -> Any:
    return _natural_logarithm(x)


def test_the_natural_logarithm_is_exact_to_two_roundings() -> None:
    x = np.concatenate([np.linspace(1, 3, 4001), np.exp(np.linspace(0, 14, 4001)), 2.0 ** np.arange(21)])
    exact = np.log(x)
    ours = np.array([logarithm.call(value) for value in x])
    assert np.all(np.abs(ours - exact) <= 4e-16 * np.maximum(exact, 1e-3) + 4e-16 * exact)
    assert logarithm.call(1.0) == 0.0


def masked(logits: np.ndarray, mask: np.ndarray) -> np.ndarray:
    row = logits.copy()
    ban_unset(row, mask)
    return row


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([1, 31, 32, 33, 64, 277, 1000]),
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.01, 0.5, 0.99, 1.0]),
)
def test_exactly_the_unset_bits_are_banned(size: int, seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1, size).astype(np.float32)
    allowed = rng.random(-(-size // WORD) * WORD) < share
    mask = np.packbits(allowed, bitorder="little").view(np.int32)
    expected = np.where(allowed[:size], logits, -np.inf).astype(np.float32)
    assert masked(logits, mask).tobytes() == expected.tobytes()


@pytest.mark.parametrize("words", [0, 1, 2])
def test_tokens_beyond_the_mask_are_banned(words: int) -> None:
    row = masked(np.zeros(70, np.float32), np.full(words, -1, np.int32))
    assert np.isfinite(row).sum() == words * WORD
    assert np.isneginf(row[words * WORD :]).all()


def test_bits_beyond_the_vocabulary_are_passed_over() -> None:
    assert np.isfinite(masked(np.zeros(5, np.float32), np.full(3, -1, np.int32))).all()
