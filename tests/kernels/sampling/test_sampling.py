"""The samplers against a slow twin that sorts the whole vocabulary, and against the distributions they claim."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels.build.jit import c_function
from kernels.sampling.sampling import (
    BLOCK,
    MAX_VOCABULARY,
    WEIGHT_BITS,
    _exp_parts,
    _weight,
    argmax,
    draw,
    sampling_scratch,
)

ONE = 1 << WEIGHT_BITS
Logits = NDArray[np.float32]


@c_function("int64(float32)")
def exp_weight(exponent: Any) -> Any:
    """floor(2^42 * exp(exponent)) for an f32 exponent <= 0, as the samplers weigh."""
    mantissa, shift = _exp_parts(exponent)
    return _weight(mantissa, shift)


def argmax_of(logits: Logits) -> int:
    return int(argmax(logits))


def draw_of(
    logits: Logits, uniform: float, temperature: float = 1.0, top_k: int = 0, min_p: float = 0.0, top_p: float = 1.0
) -> int:
    return int(draw(logits, temperature, top_k, min_p, top_p, uniform, sampling_scratch(logits.size)))


def reference_weights(logits: Logits, temperature: float) -> list[int]:
    """The weight of each token, one by one in Python."""
    inverse = np.float32(min(1 / temperature, 1e38))
    with np.errstate(over="ignore"):
        exponents = (logits - np.nanmax(logits)) * inverse
    return [0 if math.isnan(z) else int(exp_weight.call(z)) for z in exponents]


def reference_kept(logits: Logits, temperature: float, top_k: int, min_p: float, top_p: float) -> dict[int, int]:
    """Weights of the tokens that may be drawn, by full sorts in the documented order."""
    numbers = [-math.inf if math.isnan(x) else float(x) for x in logits]
    ids = sorted(range(logits.size), key=lambda i: (-numbers[i], i))
    if top_k > 0:
        ids = ids[:top_k]
    weights = reference_weights(logits, temperature)
    ids = [i for i in ids if weights[i] >= min_p * ONE]
    if top_p < 1:
        ids.sort(key=lambda i: (-weights[i], i))
        sums = np.cumsum([weights[i] for i in ids])
        need = max(math.ceil(top_p * float(sums[-1])), 1)
        ids = ids[: int(np.searchsorted(sums, need)) + 1]
    return {i: weights[i] for i in sorted(ids)}


def reference_draw(logits: Logits, uniform: float, *settings: Any) -> int:
    kept = reference_kept(logits, *settings)
    total = sum(kept.values())
    target, running = min(int(uniform * total), total - 1), 0
    for token, weight in kept.items():
        running += weight
        if running > target:
            return token
    raise AssertionError("a total of zero")


@st.composite
def rows_of_logits(draw_value: Any) -> Logits:
    """Rows with many ties, -inf and NaN, of sizes around the block, and at least one finite logit."""
    size = draw_value(st.sampled_from([1, 2, 5, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7, 1000]))
    kind = draw_value(st.sampled_from(["few values", "normal", "peaked", "equal"]))
    rng = np.random.default_rng(draw_value(st.integers(0, 2**32)))
    values = {
        "few values": rng.choice([-math.inf, math.nan, -3.0, -0.0, 0.0, 1.5, 2.0], size),
        "normal": rng.normal(0, 2, size),
        "peaked": rng.normal(0, 1, size) + 15 * (rng.random(size) < 0.02),
        "equal": np.full(size, 0.25),
    }[kind].astype(np.float32)
    values[rng.integers(size)] = 2.0
    return values


uniforms = st.floats(0, 1, exclude_max=True)


@settings(max_examples=300, deadline=None)
@given(
    rows_of_logits(),
    uniforms,
    st.sampled_from([1e-300, 1e-6, 0.1, 0.7, 1.0, 2.0, 100.0]),
    st.sampled_from([0, 1, 2, 7, BLOCK, 500, 5000]),
    st.sampled_from([0.0, 1e-9, 0.05, 1.0]),
    st.sampled_from([0.0, 1e-12, 0.1, 0.5, 0.95, 0.999999, 1.0]),
)
def test_a_draw_equals_the_slow_twin(
    logits: Logits, uniform: float, temperature: float, top_k: int, min_p: float, top_p: float
) -> None:
    expected = reference_draw(logits, uniform, temperature, top_k, min_p, top_p)
    assert draw_of(logits, uniform, temperature, top_k, min_p, top_p) == expected


@settings(max_examples=100, deadline=None)
@given(rows_of_logits())
def test_the_largest_logit_is_the_first_of_its_equals(logits: Logits) -> None:
    assert argmax_of(logits) == int(np.nanargmax(logits))


@pytest.mark.parametrize("top_p", [0.1, 0.9, 0.999])
@pytest.mark.parametrize("scale", [0.0, 0.3, 3.0])
def test_a_large_vocabulary_equals_the_slow_twin(scale: float, top_p: float) -> None:
    rng = np.random.default_rng(7)
    logits = rng.normal(0, scale, 30_000).astype(np.float32)
    for top_k in (0, 300, 29_999):
        for uniform in rng.random(3):
            assert draw_of(logits, uniform, 0.9, top_k, 0.0, top_p) == reference_draw(
                logits, uniform, 0.9, top_k, 0.0, top_p
            )


def test_zero_of_either_sign_ties() -> None:
    assert argmax_of(np.array([-1.0, -0.0, 0.0], np.float32)) == 1
    assert argmax_of(np.array([-1.0, 0.0, -0.0], np.float32)) == 1
    assert draw_of(np.array([-1.0, -0.0, 0.0], np.float32), 0.99, top_k=1) == 1


def test_not_a_number_is_never_chosen() -> None:
    nan = np.float32(math.nan)
    logits = np.array([nan, -nan, -5.0, -math.inf, nan], np.float32)
    assert argmax_of(logits) == 2
    assert {draw_of(logits, u, top_k=k, top_p=p) for u in (0.0, 0.5, 0.999) for k in (0, 4) for p in (0.5, 1.0)} == {2}


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_row_without_a_usable_logit_gives_no_token(value: float) -> None:
    logits = np.full(300, value, np.float32)
    assert argmax_of(logits) == -1
    assert draw_of(logits, 0.5) == -1
    assert draw_of(logits, 0.5, top_k=3, top_p=0.5) == -1


def test_an_infinite_logit_wins() -> None:
    logits = np.array([1.0, math.inf, 2.0, math.inf], np.float32)
    assert argmax_of(logits) == 1
    assert draw_of(logits, 0.999) == 1


def test_ties_at_the_top_k_bound_go_to_the_lower_ids() -> None:
    logits = np.zeros(1000, np.float32)
    logits[700] = 1.0
    assert {draw_of(logits, u, top_k=3) for u in np.linspace(0, 0.9999, 200)} == {0, 1, 700}


def test_top_p_counts_what_top_k_and_min_p_left() -> None:
    probabilities = np.array([0.4, 0.3, 0.2, 0.1])
    logits = np.log(probabilities).astype(np.float32)
    uniforms = np.linspace(0, 0.9999, 500)
    assert {draw_of(logits, u, top_p=0.75) for u in uniforms} == {0, 1, 2}
    assert {draw_of(logits, u, top_k=3, top_p=0.75) for u in uniforms} == {0, 1}  # 0.7 of 0.9 is more than 0.75
    assert {draw_of(logits, u, min_p=0.3, top_p=0.75) for u in uniforms} == {0, 1}
    assert {draw_of(logits, u, min_p=0.6) for u in uniforms} == {0, 1}


def test_a_tiny_temperature_is_greedy() -> None:
    logits = np.random.default_rng(3).normal(0, 1, 5000).astype(np.float32)
    assert {draw_of(logits, u, temperature=5e-324) for u in (0.0, 0.5, 0.9999)} == {argmax_of(logits)}


def test_weights_are_exponentials() -> None:
    exponents = np.concatenate([-np.logspace(-9, np.log10(40), 3000), -np.arange(60) * math.log(2), [0.0]])
    exponents = exponents.astype(np.float32)
    weights = np.array([exp_weight.call(z) for z in exponents], np.float64)
    exact = np.exp(exponents.astype(np.float64)) * ONE
    assert np.all(np.abs(weights - exact) <= 2.0e-7 * exact + 1)
    assert exp_weight.call(0.0) == ONE
    assert {int(exp_weight.call(z)) for z in (-math.inf, math.nan, -43.0)} == {0}


def test_draws_follow_the_distribution() -> None:
    rng = np.random.default_rng(11)
    logits = rng.normal(0, 1.5, 40).astype(np.float32)
    scratch = sampling_scratch(logits.size)
    n = 40_000
    draws = [int(draw(logits, 0.8, 0, 0.0, 1.0, u, scratch)) for u in rng.random(n)]
    probabilities = np.exp(logits.astype(np.float64) / 0.8)
    expected = n * probabilities / probabilities.sum()
    statistic = np.sum((np.bincount(draws, minlength=40) - expected) ** 2 / expected)
    assert statistic < 72.1  # the 99.9% point of chi-squared with 39 degrees of freedom


def test_the_weights_of_the_largest_vocabulary_can_be_added() -> None:
    assert MAX_VOCABULARY * ONE < 2**63
