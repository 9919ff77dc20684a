"""The twins themselves: the emulated fma against exact fractions, and the ordered sums against exact ones."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernels.quant.weight_types import WEIGHT_TYPES
from tests.kernels import reference
from tests.kernels.ops import random_matrix, wide

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


def nearest_float32(exact: Fraction) -> np.float32:
    """The float32 next to an exact number below 2**127, ties to even."""
    guess = np.float32(exact.numerator / exact.denominator)
    around = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    return min(around, key=lambda value: (abs(Fraction(float(value)) - exact), int(value.view(np.int32)) & 1))


@settings(max_examples=500, deadline=None)
@given(floats, floats, floats)
def test_fma_rounds_once(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    assume(abs(exact) < 2**127)
    result = reference.fma(*(np.array([value], np.float32) for value in (a, b, c)))[0]
    assert result == nearest_float32(exact)


def test_fma_is_right_where_rounding_twice_is_wrong() -> None:
    a, b = np.float32(1 + 2**-12), np.float32(1 + 2**-12)  # a * b = 1 + 2**-11 + 2**-24: a tie of float32
    below = -np.float32(2**-80)  # pushes it below the tie, but is lost in float64
    arrays = [np.array([value], np.float32) for value in (a, b, below)]
    assert reference.fma(*arrays)[0] == np.float32(1 + 2**-11)
    arrays[2] = -arrays[2]
    assert reference.fma(*arrays)[0] == np.float32(1 + 2**-11 + 2**-23)


@pytest.mark.parametrize("name", WEIGHT_TYPES)
def test_sums_in_order_are_near_the_exact_ones(name: str) -> None:
    columns = wide(name, 4)
    raw = random_matrix(name, 5, columns)
    x = np.random.default_rng(1).standard_normal((3, columns)).astype(np.float32)
    exact = reference.matmul(WEIGHT_TYPES[name], raw, x)
    assert np.abs(reference.matmul_in_order(WEIGHT_TYPES[name], raw, x) - exact).max() < 1e-6 * np.abs(exact).max() * 4


def test_quantized_activations_are_within_half_a_step() -> None:
    x = np.random.default_rng(2).standard_normal((4, 96)).astype(np.float32)
    x[1, 40] = 30
    quantized = reference.quantize_activations(x)
    values, scales, fine = quantized.values, quantized.scales, quantized.fine
    error = np.abs(values * scales[..., None] - x.reshape(4, 3, 32))
    assert (error <= 0.501 * scales[..., None]).all()
    assert fine[1, 1] and fine.sum() == 1
    assert np.abs(values[fine]).max() == 16256 and np.abs(values[~fine]).max() == 127
    (high, high_scales), (low, low_scales) = quantized.planes()
    joined = high.astype(float) * high_scales[..., None] + low.astype(float) * low_scales[..., None]
    assert np.allclose(joined, values * scales[..., None].astype(float), rtol=1e-7)
