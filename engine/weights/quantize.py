"""Rows of floats to the types that `octavo convert` and --quantize write, in the layouts that kernels/quant/ draws.

F32, F16 and BF16 take the nearest value, and are widened exactly. Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1 are rounded as the
reference quantizers of ggml round them: element by element, or by the extremes of a block, so the bits are the same on
every machine. Q4_0 and Q5_0 map the value furthest from zero to the lowest number; Q4_1 and Q5_1 spread their numbers
from the smallest value to the largest.

Q4_K, Q5_K and Q6_K: kernels/quant/fit.py finds the scale, and minimum, of each sub-block. Scales and minima are rounded
to multiples of the block's own, and then each value takes the nearest number under the rounded ones.
"""

import numpy as np
from numpy.typing import NDArray

from kernels.quant.fit import fit_affine, fit_symmetric

FLOAT_TYPES = ("F32", "F16", "BF16")


def as_float32(type_name: str, rows: NDArray[np.uint8]) -> NDArray[np.float32]:
    """uint8 [rows, row_bytes] of F32, F16 or BF16 -> float32 [rows, columns]."""
    rows = np.ascontiguousarray(rows)
    match type_name:
        case "F32":
            return rows.view(np.float32)
        case "F16":
            return rows.view(np.float16).astype(np.float32)
    return (rows.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


Float32 = NDArray[np.float32]
Bytes = NDArray[np.uint8]


def q8_0(blocks: Float32) -> Bytes:
    """float32 [blocks, 32] -> uint8 [blocks, 34]; halves are rounded away from zero."""
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    scaled = blocks * _inverse(scale)
    whole = np.floor(np.abs(scaled))
    rounded = np.copysign(whole + np.floor(2 * (np.abs(scaled) - whole)), scaled)
    return np.concatenate([_half(scale), rounded.astype(np.int8).view(np.uint8)], axis=1)


def q4_0(blocks: Float32) -> Bytes:
    """float32 [blocks, 32] -> uint8 [blocks, 18]."""
    scale, numbers = _around_zero(blocks, 16)
    return np.concatenate([_half(scale), _nibbles(numbers)], axis=1)


def q4_1(blocks: Float32) -> Bytes:
    """float32 [blocks, 32] -> uint8 [blocks, 20]."""
    scale, least, numbers = _from_least(blocks, 16)
    return np.concatenate([_half(scale), _half(least), _nibbles(numbers)], axis=1)


def q5_0(blocks: Float32) -> Bytes:
    """float32 [blocks, 32] -> uint8 [blocks, 22]."""
    scale, numbers = _around_zero(blocks, 32)
    return np.concatenate([_half(scale), _fifth_bits(numbers), _nibbles(numbers)], axis=1)


def q5_1(blocks: Float32) -> Bytes:
    """float32 [blocks, 32] -> uint8 [blocks, 24]."""
    scale, least, numbers = _from_least(blocks, 32)
    return np.concatenate([_half(scale), _half(least), _fifth_bits(numbers), _nibbles(numbers)], axis=1)


def _around_zero(blocks: Float32, levels: int) -> tuple[Float32, Bytes]:
    """Scale [blocks, 1], and numbers with zero at levels / 2."""
    furthest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1, keepdims=True), axis=1)
    scale = furthest / np.float32(-levels // 2)
    return scale, _clipped(blocks * _inverse(scale) + np.float32(levels // 2 + 0.5), levels)


def _from_least(blocks: Float32, levels: int) -> tuple[Float32, Float32, Bytes]:
    """Scale and smallest value [blocks, 1], and numbers with that value at zero."""
    least = blocks.min(axis=1, keepdims=True)
    scale = (blocks.max(axis=1, keepdims=True) - least) / np.float32(levels - 1)
    return scale, least, _clipped((blocks - least) * _inverse(scale) + np.float32(0.5), levels)


def _inverse(scale: Float32) -> Float32:
    """1 / scale, and 0 for 0."""
    inverse: Float32 = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
    return inverse


def _clipped(values: Float32, levels: int) -> Bytes:
    """Cut off to whole numbers from 0 to levels - 1."""
    return np.clip(np.trunc(values), 0, levels - 1).astype(np.uint8)


def _half(values: Float32) -> Bytes:
    return values.astype(np.float16).view(np.uint8)


def _nibbles(numbers: Bytes) -> Bytes:
    """Low four bits: value i in the low half of byte i, value 16 + i in the high half."""
    return (numbers[:, :16] & np.uint8(15)) | (numbers[:, 16:] << np.uint8(4))


def _fifth_bits(numbers: Bytes) -> Bytes:
    """Bit i of four bytes belongs to value i."""
    return np.packbits(numbers >> np.uint8(4), axis=1, bitorder="little")


BLOCK = 256
_TOP_FACTOR = 63  # of 6 bits


def q4_k(blocks: Float32) -> Bytes:
    """float32 [blocks, 256] -> uint8 [blocks, 144]."""
    scales, factors, numbers = _affine(blocks, 15)
    return np.concatenate([scales, factors, _paired_nibbles(numbers)], axis=1)


def q5_k(blocks: Float32) -> Bytes:
    """float32 [blocks, 256] -> uint8 [blocks, 176]."""
    scales, factors, numbers = _affine(blocks, 31)
    fifths = (numbers >> np.uint8(4)).reshape(-1, 8, 32) << np.arange(8, dtype=np.uint8)[:, None]
    fifth_bits = np.bitwise_or.reduce(fifths, axis=1)
    return np.concatenate([scales, factors, fifth_bits, _paired_nibbles(numbers & np.uint8(15))], axis=1)


def q6_k(blocks: Float32) -> Bytes:
    """float32 [blocks, 256] -> uint8 [blocks, 210]."""
    count, bottom = len(blocks), 32
    found = np.empty((count, 16), np.float32)
    fit_symmetric(np.ascontiguousarray(blocks).reshape(-1, 16), bottom, found.reshape(-1))
    furthest = np.take_along_axis(found, np.abs(found).argmax(axis=1, keepdims=True), axis=1)
    scale = (furthest / np.float32(-128)).astype(np.float16)
    factors = _whole(found, scale.astype(np.float32), -128, 127)
    steps = scale.astype(np.float32) * factors
    numbers = (_whole(blocks.reshape(count, 16, 16), steps[..., None], -bottom, bottom - 1) + bottom).astype(np.uint8)
    quarters = numbers.reshape(count, 2, 4, 32)
    low, high = quarters & np.uint8(15), quarters >> np.uint8(4)
    nibbles = low[:, :, :2] | (low[:, :, 2:] << np.uint8(4))
    upper = np.bitwise_or.reduce(high << np.arange(0, 8, 2, dtype=np.uint8)[:, None], axis=2)
    parts = [nibbles.reshape(count, 128), upper.reshape(count, 64), factors.astype(np.int8).view(np.uint8)]
    return np.concatenate([*parts, scale.view(np.uint8)], axis=1)


def _affine(blocks: Float32, top: int) -> tuple[Bytes, Bytes, Bytes]:
    """d and dmin as bytes [blocks, 4], the packed 6-bit factors [blocks, 12], and the numbers [blocks, 256]."""
    count = len(blocks)
    found, least = np.empty(count * 8, np.float32), np.empty(count * 8, np.float32)
    fit_affine(np.ascontiguousarray(blocks).reshape(-1, 32), top, found, least)
    scale, factors = _rounded(found.reshape(count, 8))
    least_scale, minimums = _rounded(least.reshape(count, 8))
    steps, shifts = scale.astype(np.float32) * factors, least_scale.astype(np.float32) * minimums
    numbers = _whole(blocks.reshape(count, 8, 32) + shifts[..., None], steps[..., None], 0, top)
    scales = np.concatenate([scale, least_scale], axis=1).view(np.uint8)
    packed = _six_bits(factors.astype(np.uint8), minimums.astype(np.uint8))
    return scales, packed, numbers.astype(np.uint8).reshape(count, BLOCK)


def _rounded(found: Float32) -> tuple[NDArray[np.float16], Float32]:
    """The block's own scale [blocks, 1], and the whole multiples of it that stand for what was found."""
    scale = (found.max(axis=1, keepdims=True) / np.float32(_TOP_FACTOR)).astype(np.float16)
    return scale, _whole(found, scale.astype(np.float32), 0, _TOP_FACTOR)


def _whole(values: Float32, step: Float32, least: int, most: int) -> Float32:
    """The nearest whole number of steps within bounds; 0 where a step is 0."""
    step = np.broadcast_to(step, values.shape)
    quotient = np.divide(values, step, out=np.zeros(values.shape, np.float32), where=step != 0)
    return np.clip(np.rint(quotient), least, most)


def _six_bits(factors: Bytes, minimums: Bytes) -> Bytes:
    """[blocks, 8] twice -> [blocks, 12]."""
    first = factors[:, :4] | (factors[:, 4:] >> np.uint8(4) << np.uint8(6))
    second = minimums[:, :4] | (minimums[:, 4:] >> np.uint8(4) << np.uint8(6))
    third = (factors[:, 4:] & np.uint8(15)) | (minimums[:, 4:] << np.uint8(4))
    return np.concatenate([first, second, third], axis=1)


def _paired_nibbles(numbers: Bytes) -> Bytes:
    """Of each 64 values, the first 32 in the low halves of 32 bytes, the others in the high halves."""
    pairs = numbers.reshape(-1, 4, 2, 32)
    return (pairs[:, :, 0] | (pairs[:, :, 1] << np.uint8(4))).reshape(-1, 128)


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
