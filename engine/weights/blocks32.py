"""Rows of floats -> Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1, as the reference quantizers of ggml round them.

All is element by element, or by the extremes of a block, so the bits are the same on every machine. Q4_0 and Q5_0 map
the value furthest from zero to the lowest number; Q4_1 and Q5_1 spread theirs from the smallest to the largest.
"""

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Bytes = NDArray[np.uint8]

BLOCK = 32


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
