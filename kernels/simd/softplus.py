"""softplus(x) = log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)), by the engine's one exponential.

log1p(u) for 0 <= u <= 1 is 2 * atanh(u / (2 + u)), the odd series to the 17th power: every operation is an explicit
fma, division or multiplication in one order. The relative error stays below 2**-21.
"""

import numpy as np

from kernels.build.jit import njit_inline
from kernels.simd.exp import exp_f32x16
from kernels.simd.vectors import absolute, fma, maximum, splat_f32x16

# 1 / (2k + 1), the coefficients of atanh(s) / s in s**2.
_C1, _C2, _C3, _C4 = np.float32(1 / 3), np.float32(1 / 5), np.float32(1 / 7), np.float32(1 / 9)
_C5, _C6, _C7, _C8 = np.float32(1 / 11), np.float32(1 / 13), np.float32(1 / 15), np.float32(1 / 17)


@njit_inline
def softplus_f32x16(x):
    """softplus of 16 float32; NaN counts as a number below 0."""
    zero, one, two = splat_f32x16(np.float32(0)), splat_f32x16(np.float32(1)), splat_f32x16(np.float32(2))
    u = exp_f32x16(zero - absolute(x))
    s = u / (two + u)
    square = s * s
    p = fma(splat_f32x16(_C8), square, splat_f32x16(_C7))
    p = fma(p, square, splat_f32x16(_C6))
    p = fma(p, square, splat_f32x16(_C5))
    p = fma(p, square, splat_f32x16(_C4))
    p = fma(p, square, splat_f32x16(_C3))
    p = fma(p, square, splat_f32x16(_C2))
    p = fma(p, square, splat_f32x16(_C1))
    p = fma(p, square, one)
    return fma(two * s, p, maximum(x, zero))
