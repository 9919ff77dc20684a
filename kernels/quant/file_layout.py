"""How a file holds a block of a quantized type, as data; NumPy reads a block by it, compiled code takes it apart by it.

A type's numbers stand in the file as bits of runs of bytes: see Bits. BlockType is what all quantized types have.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kernels.build.toolchain import ir
from kernels.quant.quads import shift_bytes
from kernels.simd.vectors import I8, I16, I32, I64, constant, load

# Numbers that compiled code takes out of a block at a time: one 16-byte vector.
CHUNK = 16


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


@dataclass(frozen=True, kw_only=True)
class FileLayout:
    """A block of one row as the file holds it.

    NumPy reads uint8 [rows, blocks, block bytes] by the `read` methods, compiled code one block by the `emit` methods.
    A type whose numbers are not bits of bytes, as the points of a codebook are, overrides both of the weights.
    """

    scale_at: int  # byte of the block's scale
    weights: tuple[Bits, ...]
    scale_bytes: int = 2  # f16, or 1: an exponent
    minimum_at: int | None = None  # byte of the minimum, f16
    weights_xor: int = 0  # what turns a weight's bits into an unsigned number
    scales: tuple[Bits, ...] = ()  # of the sub-blocks
    scales_minus: int = 0  # what is taken off a sub-block's scale, which is an int8 then
    minimums: tuple[Bits, ...] = ()  # of the sub-blocks

    def read_scale(self, raw):
        """The blocks' scales [rows, blocks]: float16, or uint8 where they are exponents."""
        return _read_f16(raw, self.scale_at) if self.scale_bytes == 2 else raw[..., self.scale_at]

    def read_minimum(self, raw):
        """The blocks' minimums, float16 [rows, blocks]; None where there are none."""
        return None if self.minimum_at is None else _read_f16(raw, self.minimum_at)

    def read_weights(self, raw):
        """The unsigned weights, uint8 [rows, blocks, values]."""
        return _read_bits(raw, self.weights) ^ np.uint8(self.weights_xor)

    def read_scales(self, raw):
        """The scales of the sub-blocks, int16 [rows, blocks, sub-blocks]."""
        return (_read_bits(raw, self.scales) - np.uint8(self.scales_minus)).view(np.int8).astype(np.int16)

    def read_minimums(self, raw):
        """The minimums of the sub-blocks, uint8 [rows, blocks, sub-blocks]; None where there are none."""
        return _read_bits(raw, self.minimums) if self.minimums else None

    def emit_weights(self, builder, block, first):
        """The unsigned weights of values first..first + 15: 16 x i8."""
        weights = _emit_numbers(builder, block, self.weights, range(first, first + CHUNK))
        return builder.xor(weights, constant(weights.type, self.weights_xor))

    def emit_scales(self, builder, block):
        """The scales of all sub-blocks: a vector of signed bytes."""
        scales = _emit_numbers(builder, block, self.scales, _all_numbers(self.scales))
        return builder.sub(scales, constant(scales.type, self.scales_minus))

    def emit_minimums(self, builder, block):
        """The minimums of all sub-blocks: a vector of unsigned bytes."""
        return _emit_numbers(builder, block, self.minimums, _all_numbers(self.minimums))


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockType:
    """A quantized weight type; w is the stored unsigned number, or its entry in the type's table."""

    name: str
    number: int  # GGML's; what kernels are compiled for
    file_bytes: int  # of a block of one row, as the file holds it
    bits: int  # of a stored number
    offset: int  # what is taken off w
    layout: FileLayout
    table: tuple[int, ...] | None = None  # w by the stored number
    takes_floats: ClassVar[bool] = False

    @property
    def has_minimum(self) -> bool:
        """Whether blocks have a minimum."""
        return self.layout.minimum_at is not None

    @property
    def max_weight(self) -> int:
        """The largest w."""
        return max(self.table) if self.table else (1 << self.bits) - 1

    def whole_numbers(self, weights: NDArray[np.uint8]) -> NDArray[np.int32]:
        """w - offset, by the stored numbers."""
        if self.table is not None:
            return np.array(self.table, np.int32)[weights] - self.offset
        return weights.astype(np.int32) - self.offset

    def file_blocks(self, raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """uint8 [rows, row bytes] -> [rows, blocks, block bytes]."""
        return raw.reshape(len(raw), -1, self.file_bytes)


def _read_f16(raw, at):
    return np.ascontiguousarray(raw[..., at : at + 2]).view(np.float16)[..., 0]


def _read_bits(raw, fields):
    """uint8 [rows, blocks, bytes] -> the numbers that the fields describe, uint8 [rows, blocks, numbers]."""
    numbers = np.zeros((*raw.shape[:2], max(field.numbers.stop for field in fields)), np.uint8)
    for field in fields:
        sources = np.array([field.source(number) for number in field.numbers])
        bits = raw[..., sources[:, 0]] >> sources[:, 1].astype(np.uint8) & ((1 << field.width) - 1)
        numbers[..., field.numbers.start : field.numbers.stop] |= bits << field.shift
    return numbers


def _all_numbers(fields):
    return range(max(field.numbers.stop for field in fields))


def _emit_numbers(builder, block, fields, numbers):
    """Join the bits of all fields: a vector with a byte a number."""
    value = ir.Constant(ir.VectorType(I8, len(numbers)), None)
    for field in fields:
        if field.numbers.start < numbers.stop and numbers.start < field.numbers.stop:
            value = builder.or_(value, _emit_bits(builder, block, field, numbers))
    return value


def _emit_bits(builder, block, field, numbers):
    """One field's bits of each number, moved to their place in it; zeros for a number that has none there."""
    there = [number in field.numbers for number in numbers]
    places = [field.source(number if has else field.first) for number, has in zip(numbers, there, strict=True)]
    first, last = min(byte for byte, _ in places), max(byte for byte, _ in places)
    source = load(builder, builder.add(block, I64(first)), ir.VectorType(I8, last - first + 1))
    picks = [byte - first for byte, _ in places]
    if picks != list(range(source.type.count)):
        mask = ir.Constant(ir.VectorType(I32, len(picks)), picks)
        source = builder.shuffle_vector(source, ir.Constant(source.type, ir.Undefined), mask)
    moved = _shift(builder, source, [bit - field.shift for _, bit in places])
    return builder.and_(moved, ir.Constant(moved.type, [field.mask if has else 0 for has in there]))


def _shift(builder, vector, right):
    """Shift each byte right (left where negative) by a number of its own; the caller masks as for shift_bytes."""
    if all(bits == right[0] for bits in right):
        return shift_bytes(builder, vector, -right[0])
    wide = ir.VectorType(I16, vector.type.count)
    # Left by 8 first, so that all shifts are to the right.
    raised = builder.shl(builder.zext(vector, wide), constant(wide, 8))
    moved = builder.lshr(raised, ir.Constant(wide, [8 + bits for bits in right]))
    return builder.trunc(moved, vector.type)
