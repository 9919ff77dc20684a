"""Tables of cosines and sines for rotary positions, the same bits on every machine.

NumPy's own power, cosine and sine differ in the last bit from processor to processor. Here frequencies come from
decimal arithmetic, and angles from additions and multiplications in float64, which IEEE 754 leaves no choice; both are
far more exact than the float32 that is stored.
"""

import math
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

# pi/2 in two parts (fdlibm, e_rem_pio2.c): the first has 33 bits, so its multiples below 2**20 are exact.
_HALF_PI_HIGH = 1.57079632673412561417e00
_HALF_PI_LOW = 6.07710050650619224932e-11
_TERMS = 9  # of the Taylor series; the next is below 1e-19 for |x| <= pi/4

_POSITIONS_AT_ONCE = 4096  # bounds the memory of the float64 steps


def rotary_frequencies(base: float, pairs: int) -> Float64:
    """base ** (-i / pairs) for each pair i: float64 [pairs]."""
    with localcontext() as context:
        context.prec = 40
        return np.array([float(Decimal(base) ** (Decimal(-i) / pairs)) for i in range(pairs)])


def rotary_table(frequencies: Float64, positions: int, magnitude: float = 1.0) -> NDArray[np.float32]:
    """Cosine and sine of position * frequency, times `magnitude`, pair by pair: float32 [positions, pairs * 2]."""
    table = np.empty((positions, len(frequencies), 2), np.float32)
    for start in range(0, positions, _POSITIONS_AT_ONCE):
        part = table[start : start + _POSITIONS_AT_ONCE]
        cosine, sine = cosine_and_sine(np.arange(start, start + len(part))[:, None] * frequencies)
        part[..., 0], part[..., 1] = cosine * magnitude, sine * magnitude
    return table.reshape(positions, -1)


def cosine_and_sine(angles: Float64) -> tuple[Float64, Float64]:
    """Cosine and sine of angles from 0 to a million, with an absolute error below 1e-15."""
    quarters = np.rint(angles * (2 / math.pi))
    rest = (angles - quarters * _HALF_PI_HIGH) - quarters * _HALF_PI_LOW
    even, odd = _taylor(rest, first=0), rest * _taylor(rest, first=1)
    turned = quarters.astype(np.int64) % 4
    cosine = np.choose(turned, [even, -odd, -even, odd])
    sine = np.choose(turned, [odd, even, -odd, -even])
    return cosine, sine


def _taylor(x: Float64, first: int) -> Float64:
    """Sum of (-x**2)**k / (2k + first)!: the cosine for first = 0, sin(x) / x for first = 1."""
    square, total = x * x, np.zeros_like(x)
    for k in reversed(range(_TERMS + 1)):
        total = 1 / math.factorial(2 * k + first) - square * total
    return total
