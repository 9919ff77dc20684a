"""Weight types with blocks of 256 values (k-quants, IQ4_XS): what each is in the file, and their x16 layout in memory.

A block of 256 values has an f16 scale d and sub-blocks of 16 or 32 values, each with a whole-number scale and, in some
types, a whole-number minimum. In memory a block of 16 rows is

    d           16 x f16, one a row
    d_minimum   16 x f16, only in types that have minimums
    scales      one byte each, by pairs of sub-blocks (2p, 2p + 1): byte 32*p + 2*r + i is of row r, sub-block 2p + i
    minimums    laid out as the scales; with 4-bit scales they stand in the upper halves of the scales' bytes
    values      8 units, see quads.py

The block function (block_functions.py), for each of B rows of activations (whole numbers x with one f32 scale a 256
values):

    acc = fma(f32(sum over j of s_j * sum((w - offset) * x)), d * scale, acc)
    acc = fma(f32(sum over j of m_j * sum(x)), -(d_minimum * scale), acc)       where there are minimums

The sums are whole numbers below 2**31, so they are exact on every path: sub-scales cost no rounding.

A new type is a Block256 here, and a name in weight_types.py.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.quant.block32 import IQ4_TABLE
from kernels.quant.file_layout import Bits, BlockType, FileLayout
from kernels.quant.quads import ROWS, UNIT, by_groups, pack_units, side_by_side, unit_bytes

VALUES = 256
# Rows of the activations' side data, 4 bytes a lane each: the scales of the two planes, the kind, then for each plane
# sums as pairs of int16: of 16 values each (8 rows) and of 32 values each (4 rows).
SCALE, LOW_SCALE, KIND256 = range(3)
SUMS16 = (4, 16)  # first row, by plane
SUMS32 = (12, 24)
SIDE256_ROWS = 28
SIDE256_BYTES = 4 * SIDE256_ROWS


class Unpacked256(NamedTuple):
    """The numbers of a matrix of a 256-value type."""

    d: NDArray[np.float16]  # [rows, blocks]
    d_minimum: NDArray[np.float16] | None  # [rows, blocks]
    scales: NDArray[np.int16]  # [rows, blocks, sub-blocks]
    minimums: NDArray[np.uint8] | None  # [rows, blocks, sub-blocks]
    weights: NDArray[np.uint8]  # [rows, blocks, 256], the stored numbers


@dataclass(frozen=True, kw_only=True, eq=False)
class Block256(BlockType):
    """One 256-value weight type; a value is d * s_j * (w - offset) (- d_minimum * m_j)."""

    sub_values: int  # 16 or 32
    max_scale: int  # the largest |s_j|
    values: ClassVar[int] = VALUES
    granule: ClassVar[int] = VALUES  # rows of a matrix are whole blocks
    side_bytes: ClassVar[int] = SIDE256_BYTES  # of the activations
    kind_row: ClassVar[int] = KIND256
    planes: ClassVar[tuple[str, ...]] = ("quads256", "fine256", "side256")  # where they stand in a PACKED record

    @property
    def max_product(self) -> int:
        """The largest |s_j * (w - offset)|."""
        smallest = min(self.table) if self.table else 0
        return self.max_scale * max(self.offset - smallest, self.max_weight - self.offset)

    @property
    def signed_scales(self) -> bool:
        """Scales are signed where no minimum moves the values below zero."""
        return not self.has_minimum

    @property
    def pairs(self) -> int:
        """Pairs of sub-blocks."""
        return VALUES // self.sub_values // 2

    @property
    def shares_bytes(self) -> bool:
        """Whether a scale and its minimum share one byte: where a block has 16 of both, they have 4 bits each."""
        return self.has_minimum and self.sub_values == 16

    @property
    def scales_at(self) -> int:
        """Bytes before the scales in a packed block."""
        return 2 * ROWS * (2 if self.has_minimum else 1)

    @property
    def minimums_at(self) -> int:
        """Bytes before the minimums, where they have bytes of their own."""
        return self.scales_at + 2 * ROWS * self.pairs

    @property
    def values_at(self) -> int:
        """Bytes before the values."""
        return self.minimums_at + (2 * ROWS * self.pairs if self.has_minimum and not self.shares_bytes else 0)

    @property
    def packed_bytes(self) -> int:
        """Bytes of a block of 16 rows in the x16 layout."""
        return self.values_at + VALUES // UNIT * unit_bytes(self.bits)

    def unpack(self, raw: NDArray[np.uint8]) -> Unpacked256:
        """Return the numbers of a matrix as in the file, uint8 [rows, row bytes]."""
        blocks, layout = self.file_blocks(raw), self.layout
        return Unpacked256(
            layout.read_scale(blocks),
            layout.read_minimum(blocks),
            layout.read_scales(blocks),
            layout.read_minimums(blocks),
            layout.read_weights(blocks),
        )

    def pack(self, raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Lay out x16: uint8 [rows, row bytes] as in the file -> uint8 [groups, blocks, packed bytes]."""
        numbers = self.unpack(raw)
        rows, blocks = numbers.d.shape
        groups = -(-rows // ROWS)
        parts = [side_by_side(numbers.d, groups)]
        scales, minimums = numbers.scales.astype(np.uint8), numbers.minimums
        if minimums is not None:
            parts.append(side_by_side(numbers.d_minimum, groups))
            if self.shares_bytes:
                scales |= minimums << 4
        parts.append(self._pack_pairs(scales, groups))
        if minimums is not None and not self.shares_bytes:
            parts.append(self._pack_pairs(minimums, groups))
        units = pack_units(by_groups(numbers.weights.reshape(rows, blocks * VALUES), groups), self.bits)
        return np.concatenate([*parts, units.reshape(groups, blocks, -1)], axis=2)

    def _pack_pairs(self, numbers, groups):
        """uint8 [rows, blocks, sub-blocks] -> uint8 [groups, blocks, 32 * pairs]."""
        blocks = numbers.shape[1]
        grouped = by_groups(numbers, groups).reshape(groups, ROWS, blocks, self.pairs, 2)
        return grouped.transpose(0, 2, 3, 1, 4).reshape(groups, blocks, 2 * ROWS * self.pairs)

    def dequantize(self, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return float32 [rows, columns] of a matrix as in the file, by the arithmetic of ggml's reference."""
        numbers = self.unpack(raw)
        whole = self.whole_numbers(numbers.weights).reshape(*numbers.scales.shape, self.sub_values)
        scales = numbers.d.astype(np.float32)[..., None] * numbers.scales.astype(np.float32)
        values = scales[..., None] * whole.astype(np.float32)
        if numbers.d_minimum is not None and numbers.minimums is not None:
            minimums = numbers.d_minimum.astype(np.float32)[..., None] * numbers.minimums.astype(np.float32)
            values = values - minimums[..., None]
        return values.reshape(len(raw), -1)


def _of_6_bits(at: int, low: int) -> tuple[Bits, ...]:
    """Eight numbers: four in bytes `at` to `at + 3`, and four whose low bits stand from `low` on in bytes 12..15."""
    return (
        Bits(at=at, width=6, planes=1, run=4),
        Bits(at=12, width=4, planes=1, run=4, first=4, low=low),
        Bits(at=at, width=2, planes=1, run=4, first=4, low=6, shift=4),
    )


# Q2_K: 256 values in 84 bytes, in 16 sub-blocks of 16; value = d * sc * q - dmin * m.
#
#     bytes 0..15   sub-block j: sc (low nibble) and m (high nibble) of byte j
#     bytes 16..79  q, 2 bits each: bits 2p and 2p + 1 of byte 16 + 32*h + i hold value 128*h + 32*p + i
#     bytes 80..81  d, f16
#     bytes 82..83  dmin, f16
#
# Source: ggml-common.h, block_q2_K.
Q2_K = Block256(
    name="Q2_K",
    number=10,
    file_bytes=84,
    bits=2,
    offset=0,
    sub_values=16,
    max_scale=15,
    layout=FileLayout(
        scale_at=80,
        minimum_at=82,
        scales=(Bits(at=0, width=4, planes=1, run=16),),
        minimums=(Bits(at=0, width=4, planes=1, run=16, low=4),),
        weights=(Bits(at=16, width=2, planes=4, run=32, runs=2),),
    ),
)


# Q3_K: 256 values in 110 bytes, in 16 sub-blocks of 16; value = d * sc * (q - 4), sc from -32 to 31.
#
#     bytes 0..31     the third bits of q: bit p of byte i belongs to value 32*p + i
#     bytes 32..95    the low 2 bits of q: bits 2p and 2p + 1 of byte 32 + 32*h + i belong to value 128*h + 32*p + i
#     bytes 96..103   the low 4 bits of sc + 32: byte 96 + j holds sub-block j (low nibble) and j + 8 (high nibble)
#     bytes 104..107  the upper 2 bits of sc + 32: bits 2p and 2p + 1 of byte 104 + j belong to sub-block 4*p + j
#     bytes 108..109  d, f16
#
# Source: ggml-common.h, block_q3_K (which takes 4 off where the third bit is 0: the same value).
Q3_K = Block256(
    name="Q3_K",
    number=11,
    file_bytes=110,
    bits=3,
    offset=4,
    sub_values=16,
    max_scale=32,
    layout=FileLayout(
        scale_at=108,
        scales=(Bits(at=96, width=4, planes=2, run=8), Bits(at=104, width=2, planes=4, run=4, shift=4)),
        scales_minus=32,
        weights=(Bits(at=32, width=2, planes=4, run=32, runs=2), Bits(at=0, width=1, planes=8, run=32, shift=2)),
    ),
)


# Q4_K: 256 values in 144 bytes, in 8 sub-blocks of 32; value = d * sc * q - dmin * m.
#
#     bytes 0..1     d, f16
#     bytes 2..3     dmin, f16
#     bytes 4..15    sc and m of the 8 sub-blocks, 6 bits each, with j from 0 to 3:
#                    byte 4 + j   bits 0..5: sc of sub-block j;               bits 6..7: bits 4..5 of sc of j + 4
#                    byte 8 + j   bits 0..5: m of sub-block j;                bits 6..7: bits 4..5 of m of j + 4
#                    byte 12 + j  bits 0..3: the low 4 bits of sc of j + 4;   bits 4..7: the low 4 bits of m of j + 4
#     bytes 16..143  q, 4 bits each: byte 16 + 32*c + i holds value 64*c + i (low nibble) and 64*c + 32 + i (high)
#
# Source: ggml-common.h, block_q4_K.
Q4_K = Block256(
    name="Q4_K",
    number=12,
    file_bytes=144,
    bits=4,
    offset=0,
    sub_values=32,
    max_scale=63,
    layout=FileLayout(
        scale_at=0,
        minimum_at=2,
        scales=_of_6_bits(at=4, low=0),
        minimums=_of_6_bits(at=8, low=4),
        weights=(Bits(at=16, width=4, planes=2, run=32, runs=4),),
    ),
)


# Q5_K: 256 values in 176 bytes, in 8 sub-blocks of 32; value = d * sc * q - dmin * m.
#
#     bytes 0..1     d, f16
#     bytes 2..3     dmin, f16
#     bytes 4..15    sc and m of the 8 sub-blocks, 6 bits each, as in Q4_K
#     bytes 16..47   the fifth bits of q: bit p of byte 16 + i belongs to value 32*p + i
#     bytes 48..175  the low 4 bits of q: byte 48 + 32*c + i holds value 64*c + i (low nibble) and 64*c + 32 + i (high)
#
# Source: ggml-common.h, block_q5_K.
Q5_K = replace(
    Q4_K,
    name="Q5_K",
    number=13,
    file_bytes=176,
    bits=5,
    layout=replace(
        Q4_K.layout,
        weights=(Bits(at=48, width=4, planes=2, run=32, runs=4), Bits(at=16, width=1, planes=8, run=32, shift=4)),
    ),
)


# Q6_K: 256 values in 210 bytes, in 16 sub-blocks of 16; value = d * sc * (q - 32), sc a whole int8.
#
#     bytes 0..127    the low 4 bits of q: byte 64*h + i holds value 128*h + i (low nibble) and 128*h + 64 + i (high)
#     bytes 128..191  the upper 2 bits of q: bits 2p and 2p + 1 of byte 128 + 32*h + i belong to value 128*h + 32*p + i
#     bytes 192..207  sc, int8 each
#     bytes 208..209  d, f16
#
# Source: ggml-common.h, block_q6_K.
Q6_K = Block256(
    name="Q6_K",
    number=14,
    file_bytes=210,
    bits=6,
    offset=32,
    sub_values=16,
    max_scale=128,
    layout=FileLayout(
        scale_at=208,
        scales=(Bits(at=192, width=8, planes=1, run=16),),
        weights=(
            Bits(at=0, width=4, planes=2, run=64, runs=2),
            Bits(at=128, width=2, planes=4, run=32, runs=2, shift=4),
        ),
    ),
)


# IQ4_XS: 256 values in 136 bytes, in 8 sub-blocks of 32; value = d * sc * table[q], sc from -32 to 31.
#
#     bytes 0..1    d, f16
#     bytes 2..3    the upper 2 bits of sc + 32, u16 little endian: bits 2j and 2j + 1 belong to sub-block j
#     bytes 4..7    the low 4 bits of sc + 32: byte 4 + j holds sub-block 2*j (low nibble) and 2*j + 1 (high nibble)
#     bytes 8..135  q, 4 bits each: byte 8 + 16*j + i holds value 32*j + i (low nibble) and 32*j + 16 + i (high nibble)
#
# The table is that of IQ4_NL.
# Source: ggml-common.h, block_iq4_xs.
IQ4_XS = Block256(
    name="IQ4_XS",
    number=23,
    file_bytes=136,
    bits=4,
    offset=128,
    table=IQ4_TABLE,
    sub_values=32,
    max_scale=32,
    layout=FileLayout(
        scale_at=0,
        scales=(Bits(at=4, width=4, planes=2, run=1, runs=4), Bits(at=2, width=2, planes=4, run=1, runs=2, shift=4)),
        scales_minus=32,
        weights=(Bits(at=8, width=4, planes=2, run=16, runs=8),),
    ),
)
