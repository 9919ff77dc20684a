"""exp and softplus of float32 vectors: the only exponential of the engine.

    exp(x) = 2**n * p(r),  x = n * ln 2 + r, |r| <= ln(2) / 2, p the Taylor series to r**7
    softplus(x) = log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|))
    log1p(u) = 2 * atanh(u / (2 + u)) for 0 <= u <= 1, the odd series to the 17th power

Every operation is an explicit fma, multiplication or division in one order, so vector lanes and scalars give the same
bits on every machine. The relative error of exp stays below 2**-22, that of softplus below 2**-21. exp(0) is exactly 1;
below -87.3 the result of exp is exactly 0.
"""

import numpy as np

from kernels.build.jit import njit_inline
from kernels.simd.vectors import (
    absolute,
    fma,
    maximum,
    power_of_two,
    reduce_max,
    round_to_i32,
    select_below,
    splat_f32x16,
    to_f32x16,
)

_LOG2_E = np.float32(1.4426950408889634)
# ln 2 in two parts (Cody and Waite): n times the high part is exact for |n| < 2**9.
_LN2_HIGH = np.float32(0.693359375)
_LN2_LOW = np.float32(-2.12194440054690583e-4)
_LOWEST = np.float32(-87.3)
_HIGHEST = np.float32(88.0)
_C2, _C3, _C4 = np.float32(1 / 2), np.float32(1 / 6), np.float32(1 / 24)
_C5, _C6, _C7 = np.float32(1 / 120), np.float32(1 / 720), np.float32(1 / 5040)


@njit_inline
def exp_f32x16(x):
    """exp of 16 float32; arguments above 88 count as 88."""
    zero, one = splat_f32x16(np.float32(0)), splat_f32x16(np.float32(1))
    lowest, highest = splat_f32x16(_LOWEST), splat_f32x16(_HIGHEST)
    clamped = select_below(x, highest, maximum(x, lowest), highest)
    n = round_to_i32(clamped * splat_f32x16(_LOG2_E))
    steps = zero - to_f32x16(n)
    r = fma(steps, splat_f32x16(_LN2_HIGH), clamped)
    r = fma(steps, splat_f32x16(_LN2_LOW), r)
    p = fma(splat_f32x16(_C7), r, splat_f32x16(_C6))
    p = fma(p, r, splat_f32x16(_C5))
    p = fma(p, r, splat_f32x16(_C4))
    p = fma(p, r, splat_f32x16(_C3))
    p = fma(p, r, splat_f32x16(_C2))
    p = fma(p, r, one)
    p = fma(p, r, one)
    return select_below(x, lowest, zero, p * power_of_two(n))


@njit_inline
def exp_f32(x):
    """exp of one float32, the same bits as a lane of `exp_f32x16`."""
    return reduce_max(exp_f32x16(splat_f32x16(x)))


# 1 / (2k + 1), the coefficients of atanh(s) / s in s**2.
_S1, _S2, _S3, _S4 = np.float32(1 / 3), np.float32(1 / 5), np.float32(1 / 7), np.float32(1 / 9)
_S5, _S6, _S7, _S8 = np.float32(1 / 11), np.float32(1 / 13), np.float32(1 / 15), np.float32(1 / 17)


@njit_inline
def softplus_f32x16(x):
    """softplus of 16 float32; NaN counts as a number below 0."""
    zero, one, two = splat_f32x16(np.float32(0)), splat_f32x16(np.float32(1)), splat_f32x16(np.float32(2))
    u = exp_f32x16(zero - absolute(x))
    s = u / (two + u)
    square = s * s
    p = fma(splat_f32x16(_S8), square, splat_f32x16(_S7))
    p = fma(p, square, splat_f32x16(_S6))
    p = fma(p, square, splat_f32x16(_S5))
    p = fma(p, square, splat_f32x16(_S4))
    p = fma(p, square, splat_f32x16(_S3))
    p = fma(p, square, splat_f32x16(_S2))
    p = fma(p, square, splat_f32x16(_S1))
    p = fma(p, square, one)
    return fma(two * s, p, maximum(x, zero))
