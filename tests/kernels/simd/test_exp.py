"""The engine's exponential and softplus against float64."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.build.jit import njit_inline
from kernels.simd.exp import exp_f32, exp_f32x16, softplus_f32x16
from kernels.simd.vectors import load_f32x16, store_vector
from tests.kernels import reference

Float32 = NDArray[np.float32]
LOWEST = np.float32(-87.3)


@njit_inline
def _vectors(source: Any, target: Any, count: Any) -> None:
    for chunk in range(count // 16):
        offset = np.uintp(chunk * 64)
        store_vector(exp_f32x16(load_f32x16(np.uintp(source) + offset)), np.uintp(target) + offset)


@njit_inline
def _scalars(source: Any, target: Any) -> None:
    for i in range(source.size):
        target[i] = exp_f32(source[i])


def exp(x: Float32) -> Float32:
    padded = np.zeros(-(-x.size // 16) * 16, np.float32)
    padded[: x.size] = x
    result = np.zeros_like(padded)
    _vectors(padded.ctypes.data, result.ctypes.data, padded.size)
    return result[: x.size]


def neighbours(x: float, count: int) -> Float32:
    """The `count` floats on either side of x (of one sign with it), ascending."""
    bits = int(np.float32(x).view(np.int32)) + np.arange(-count, count + 1, dtype=np.int32)
    return np.sort(bits.astype(np.int32).view(np.float32))


@pytest.mark.parametrize(("low", "high"), [(-87.3, 88), (-1, 1), (-1e-3, 1e-3), (-20, 0)])
def test_the_relative_error_is_below_two_to_the_minus_21(low: float, high: float) -> None:
    x = np.random.default_rng(0).uniform(low, high, 200_000).astype(np.float32)
    exact = reference.exp(x)
    assert (np.abs(exp(x) - exact) / exact).max() < 2**-21


def test_half_steps_of_ln_2_are_as_exact_as_the_rest() -> None:
    x = np.concatenate([neighbours((n + 0.5) * np.log(2), 40) for n in range(-125, 126)])
    exact = reference.exp(x)
    assert (np.abs(exp(x) - exact) / exact).max() < 2**-21


def test_exp_of_zero_is_exactly_one() -> None:
    assert exp(np.array([0.0, -0.0], np.float32)).tolist() == [1.0, 1.0]


def test_arguments_below_the_lowest_give_exactly_zero() -> None:
    below = np.nextafter(LOWEST, np.float32(-np.inf))
    x = np.array([below, -88, -1e4, -3e38, -np.inf], np.float32)
    assert exp(x).tobytes() == np.zeros(5, np.float32).tobytes()
    assert exp(np.array([LOWEST], np.float32))[0] > 0


def test_arguments_above_88_count_as_88() -> None:
    x = np.array([88, 89, 1e4, 3e38, np.inf], np.float32)
    assert len(set(exp(x).tolist())) == 1 and np.isfinite(exp(x)).all()


@pytest.mark.parametrize("around", [*(n * np.log(2) / 2 for n in (-249, -101, -3, -1, 1, 3, 101, 249)), -87.3, 88.0])
def test_it_is_monotone_to_one_rounding_around_boundaries(around: float) -> None:
    result = exp(neighbours(around, 500)).astype(np.float64)
    assert (np.diff(result) >= -(2.0**-22) * result[1:]).all()
    assert (result[100:] >= result[:-100]).all()


def test_every_lane_and_the_scalar_give_the_same_bits() -> None:
    x = np.random.default_rng(1).uniform(-90, 90, 1000).astype(np.float32)
    x[:6] = 0, -0.0, LOWEST, 88, -np.inf, 1e-40
    scalars = np.zeros_like(x)
    _scalars(x, scalars)
    for shift in range(16):
        assert exp(np.roll(x, shift)).tobytes() == np.roll(scalars, shift).tobytes()


@njit_inline
def _all(source, target, count):
    for i in range(0, count, 16):
        store_vector(softplus_f32x16(load_f32x16(source + np.uintp(i * 4))), target + np.uintp(i * 4))


def softplus(x: NDArray[np.float32]) -> NDArray[np.float32]:
    result = np.empty_like(x)
    _all(np.uintp(x.ctypes.data), np.uintp(result.ctypes.data), len(x))
    return result


def test_it_is_near_float64_everywhere() -> None:
    x = np.linspace(-86, 90, 1 << 16).astype(np.float32)
    np.testing.assert_allclose(softplus(x), np.logaddexp(0, x.astype(np.float64)), rtol=2.0**-21)


def test_far_out_it_is_zero_or_the_identity() -> None:
    x = np.array([-1e30, -200, 200, 1e30] * 4, np.float32)
    assert softplus(x).tolist() == [0, 0, np.float32(200), np.float32(1e30)] * 4


def test_a_value_has_the_same_bits_in_every_lane() -> None:
    x = np.random.default_rng(0).normal(0, 5, 16).astype(np.float32)
    assert all(np.array_equal(np.roll(softplus(x), i), softplus(np.roll(x, i))) for i in range(16))
