"""The search of the k-quants: for each sub-block of a row, the scale (and minimum) of least squared error.

For each of some grids near the one that spans the sub-block, values take their nearest numbers; the best scale (and
minimum) for those numbers follows by least squares, and the grid of least error wins. Sums run in one order.
"""

import numpy as np

from kernels.build.jit import c_function, njit_inline
from kernels.machine.memory import address_of
from kernels.run.program import array_at

GRIDS = 16  # tried a sub-block
SPREAD = np.float32(0.1)  # between one grid and the next, in numbers at the far end
ZERO = np.float32(0)


def fit_affine(sub_blocks: np.ndarray, top: int, scales: np.ndarray, minimums: np.ndarray) -> None:
    """float32 [sub-blocks, values] -> the scale and minimum >= 0 of each: x is near scale * q - minimum, q <= top."""
    _fit_affine.call(address_of(sub_blocks), *sub_blocks.shape, top, address_of(scales), address_of(minimums))


@c_function("void(uintp, int64, int64, int64, uintp, uintp)")
def _fit_affine(source, count, values, top, scales_at, minimums_at):
    sub_blocks = array_at(source, (count, values), np.float32)
    scales, minimums = array_at(scales_at, count, np.float32), array_at(minimums_at, count, np.float32)
    for index in range(count):
        scales[index], minimums[index] = _affine(sub_blocks[index], np.float32(top))


def fit_symmetric(sub_blocks: np.ndarray, bottom: int, scales: np.ndarray) -> None:
    """float32 [sub-blocks, values] -> the scale of each: x is near scale * q, -bottom <= q < bottom."""
    _fit_symmetric.call(address_of(sub_blocks), *sub_blocks.shape, bottom, address_of(scales))


@c_function("void(uintp, int64, int64, int64, uintp)")
def _fit_symmetric(source, count, values, bottom, scales_at):
    sub_blocks, scales = array_at(source, (count, values), np.float32), array_at(scales_at, count, np.float32)
    for index in range(count):
        scales[index] = _symmetric(sub_blocks[index], np.float32(bottom))


@njit_inline
def _nearest(value, least, most):
    return min(max(np.float32(np.rint(value)), least), most)


@njit_inline
def _affine(x, top):
    least, most = ZERO, ZERO
    for value in x:
        least, most = min(least, value), max(most, value)
    best_scale, best_minimum, best_error = ZERO, -least, np.float32(np.inf)
    if most == least:
        return best_scale, best_minimum
    count = np.float32(len(x))
    for grid in range(GRIDS):
        inverse = (top + SPREAD * np.float32(grid - GRIDS // 2)) / (most - least)
        sum_q, sum_qq, sum_x, sum_xq = ZERO, ZERO, ZERO, ZERO
        for value in x:
            q = _nearest((value - least) * inverse, ZERO, top)
            sum_q += q
            sum_qq += q * q
            sum_x += value
            sum_xq += value * q
        spread = count * sum_qq - sum_q * sum_q
        if sum_qq == ZERO:
            continue
        scale, minimum = (count * sum_xq - sum_q * sum_x) / spread, (sum_q * sum_xq - sum_qq * sum_x) / spread
        if spread <= ZERO or minimum < ZERO:
            scale, minimum = sum_xq / sum_qq, ZERO
        error = ZERO
        for value in x:
            difference = scale * _nearest((value - least) * inverse, ZERO, top) - minimum - value
            error += difference * difference
        if error < best_error and scale > ZERO:
            best_scale, best_minimum, best_error = scale, minimum, error
    return best_scale, best_minimum


@njit_inline
def _symmetric(x, bottom):
    furthest = ZERO
    for value in x:
        if abs(value) > abs(furthest):
            furthest = value
    best_scale, best_gain = ZERO, ZERO
    if furthest == ZERO:
        return best_scale
    for grid in range(GRIDS):
        inverse = -(bottom + SPREAD * np.float32(grid - GRIDS // 2)) / furthest
        sum_qq, sum_xq = ZERO, ZERO
        for value in x:
            q = _nearest(value * inverse, -bottom, bottom - np.float32(1))
            sum_qq += q * q
            sum_xq += value * q
        # What the numbers take off the sum of squares of x.
        if sum_qq > ZERO and sum_xq * sum_xq > best_gain * sum_qq:
            best_scale, best_gain = sum_xq / sum_qq, sum_xq * sum_xq / sum_qq
    return best_scale
