"""softplus against float64: near it everywhere, and in each lane the same bits."""

import numpy as np
from numpy.typing import NDArray

from kernels.build.jit import njit_inline
from kernels.simd.exp import softplus_f32x16
from kernels.simd.vectors import load_f32x16, store_vector


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
