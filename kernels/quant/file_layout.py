"""Where the numbers of a block stand in the file, as data: for NumPy here, for compiled code in file_blocks.py."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Bits:
    """Some bits of each of `runs * planes * run` neighbouring numbers.

    Each run is `run` bytes that hold `planes * run` numbers: number run * p + i of a run has bits low + width * p and
    up of byte i. So planes=2, width=4 is a byte's low nibble for the first half of a run's numbers, its high nibble for
    the second; run=1 is numbers that follow one another within a byte.
    """

    at: int  # the first byte
    width: int
    planes: int
    run: int
    runs: int = 1
    low: int = 0
    shift: int = 0  # these are bits `shift` and up of a number
    first: int = 0  # of the numbers

    @property
    def numbers(self):
        """Which numbers of the block have bits here."""
        return range(self.first, self.first + self.runs * self.planes * self.run)

    @property
    def mask(self):
        """The bits that a number can have here."""
        return ((1 << self.width) - 1) << self.shift

    def source(self, number):
        """The byte in the block, and the lowest bit in the byte, of a number's bits."""
        run, within = divmod(number - self.first, self.planes * self.run)
        plane, byte = divmod(within, self.run)
        return self.at + run * self.run + byte, self.low + plane * self.width


@dataclass(frozen=True)
class FileLayout:
    """A block of one row as the file holds it."""

    scale_at: int  # byte of the block's scale
    weights: tuple[Bits, ...]
    scale_bytes: int = 2  # f16, or 1: an exponent
    minimum_at: int | None = None  # byte of the minimum, f16
    weights_xor: int = 0  # what turns a weight's bits into an unsigned number
    scales: tuple[Bits, ...] = ()  # of the sub-blocks
    scales_minus: int = 0  # what is taken off a sub-block's scale, which is an int8 then
    minimums: tuple[Bits, ...] = ()  # of the sub-blocks

    def read_weights(self, raw):
        """uint8 [rows, blocks, bytes] -> the unsigned weights, uint8 [rows, blocks, values]."""
        return read(raw, self.weights) ^ np.uint8(self.weights_xor)

    def read_scales(self, raw):
        """uint8 [rows, blocks, bytes] -> the scales of the sub-blocks, int16 [rows, blocks, sub-blocks]."""
        return (read(raw, self.scales) - np.uint8(self.scales_minus)).view(np.int8).astype(np.int16)

    def read_f16(self, raw, at):
        """uint8 [rows, blocks, bytes] -> the f16 that stands at byte `at`, [rows, blocks]."""
        return np.ascontiguousarray(raw[..., at : at + 2]).view(np.float16)[..., 0]


def read(raw, fields):
    """uint8 [rows, blocks, bytes] -> the numbers that the fields describe, uint8 [rows, blocks, numbers]."""
    numbers = np.zeros((*raw.shape[:2], max(field.numbers.stop for field in fields)), np.uint8)
    for field in fields:
        sources = np.array([field.source(number) for number in field.numbers])
        bits = raw[..., sources[:, 0]] >> sources[:, 1].astype(np.uint8) & ((1 << field.width) - 1)
        numbers[..., field.numbers.start : field.numbers.stop] |= bits << field.shift
    return numbers


# (weight type, layout) by the type's number.
DESCRIBED: dict[int, tuple[Any, FileLayout]] = {}


def describe(kind, layout):
    """Make the layout of a type's blocks known to the compiled code; returns it."""
    DESCRIBED[kind.number] = kind, layout
    return layout


def unpack32(layout, raw):
    """uint8 [rows, blocks, bytes] -> scale f16 [rows, blocks], minimum the same or None, weights uint8 [.., 32]."""
    minimum = None if layout.minimum_at is None else layout.read_f16(raw, layout.minimum_at)
    return layout.read_f16(raw, layout.scale_at), minimum, layout.read_weights(raw)


def unpack256(layout, raw):
    """uint8 [rows, blocks, bytes] -> what a block of 256 is made of.

    d f16 [rows, blocks], dmin the same or None, scales int16 [.., sub-blocks], minimums uint8 [.., sub-blocks] or None,
    weights uint8 [.., 256].
    """
    d, scales, weights = layout.read_f16(raw, layout.scale_at), layout.read_scales(raw), layout.read_weights(raw)
    if layout.minimum_at is None:
        return d, None, scales, None, weights
    return d, layout.read_f16(raw, layout.minimum_at), scales, read(raw, layout.minimums), weights
