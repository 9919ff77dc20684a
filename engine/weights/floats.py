"""Floats of other widths: F32, F16 and BF16, each the nearest to the value."""

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Bytes = NDArray[np.uint8]


def f32(values: Float32) -> Bytes:
    """float32 [values, 1] -> uint8 [values, 4]."""
    return values.view(np.uint8)


def f16(values: Float32) -> Bytes:
    """float32 [values, 1] -> uint8 [values, 2]; beyond the range of halves, infinite."""
    with np.errstate(over="ignore"):
        return values.astype(np.float16).view(np.uint8)


def bf16(values: Float32) -> Bytes:
    """float32 [values, 1] -> uint8 [values, 2]: the upper half, rounded to even; NaN stays NaN."""
    bits = values.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)
    kept = np.where(np.isnan(values), bits | np.uint32(0x400000), rounded)
    return (kept >> 16).astype(np.uint16).view(np.uint8)
