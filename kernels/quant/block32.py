"""Weight types with blocks of 32 values: what each is in the file, and the x16 layout that they share in memory.

In memory 16 rows stand together (law 1: threads take whole groups). A block of 16 rows x 32 values is

    scales    16 x f16, one a row (MXFP4: 16 exponent bytes)
    minimums  16 x f16, only in types that have them
    values    one unit, see quads.py

The block function (block_functions.py), for each of B rows of activations (whole numbers x with one f32 scale a 32
values, see activations.py):

    acc = fma(f32(sum((w - offset) * x)), d * scale, acc);   with minimums: acc = fma(m, scale * sum(x), acc)

A new type is a Block32 here, and a name in weight_types.py.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.quant.file_layout import Bits, BlockType, FileLayout
from kernels.quant.quads import ROWS, UNIT, by_groups, pack_units, side_by_side, unit_bytes

VALUES = UNIT
# Rows of the activations' side data, 4 bytes a lane each: f32 scale, f32 scale * sum, i32 sum, i32 kind.
SCALE, SCALED_SUM, SUM, KIND = range(4)
SIDE_BYTES = 16


class Unpacked32(NamedTuple):
    """The numbers of a matrix of a 32-value type."""

    scales: NDArray[np.float16] | NDArray[np.uint8]  # [rows, blocks]; bytes are exponents
    minimums: NDArray[np.float16] | None  # [rows, blocks]
    weights: NDArray[np.uint8]  # [rows, blocks, 32], the stored numbers


@dataclass(frozen=True, kw_only=True, eq=False)
class Block32(BlockType):
    """One 32-value weight type; a block's value is d * (w - offset) (+ m)."""

    values: ClassVar[int] = VALUES
    granule: ClassVar[int] = VALUES  # rows of a matrix are whole blocks
    side_bytes: ClassVar[int] = SIDE_BYTES  # of the activations
    kind_row: ClassVar[int] = KIND
    planes: ClassVar[tuple[str, ...]] = ("quads", "fine", "side")  # where they stand in a PACKED record

    @property
    def has_exponents(self) -> bool:
        """Whether scales are exponent bytes (E8M0) of 2**(e - 128), and not f16."""
        return self.layout.scale_bytes == 1

    @property
    def scale_bytes(self) -> int:
        """Bytes of 16 rows' scales."""
        return ROWS * self.layout.scale_bytes

    @property
    def values_at(self) -> int:
        """Bytes before the values in a packed block."""
        return self.scale_bytes + (2 * ROWS if self.has_minimum else 0)

    @property
    def packed_bytes(self) -> int:
        """Bytes of a block of 16 rows in the x16 layout."""
        return self.values_at + unit_bytes(self.bits)

    def unpack(self, raw: NDArray[np.uint8]) -> Unpacked32:
        """Return the numbers of a matrix as in the file, uint8 [rows, row bytes]."""
        blocks, layout = self.file_blocks(raw), self.layout
        return Unpacked32(layout.read_scale(blocks), layout.read_minimum(blocks), layout.read_weights(blocks))

    def pack(self, raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Lay out x16: uint8 [rows, row bytes] as in the file -> uint8 [groups, blocks, packed bytes]."""
        scales, minimums, weights = self.unpack(raw)
        rows, blocks = scales.shape
        groups = -(-rows // ROWS)
        parts = [side_by_side(scales, groups)]
        if self.has_minimum:
            parts.append(side_by_side(minimums, groups))
        columns = by_groups(weights.reshape(rows, blocks * VALUES), groups)
        return np.concatenate([*parts, pack_units(columns, self.bits)], axis=2)

    def dequantize(self, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return float32 [rows, columns] of a matrix as in the file, by the arithmetic of ggml's reference."""
        scales, minimums, weights = self.unpack(raw)
        values = self.float_scales(scales)[..., None] * self.whole_numbers(weights).astype(np.float32)
        if minimums is not None:
            values = values + minimums[..., None].astype(np.float32)
        return values.reshape(len(raw), -1)

    def float_scales(self, scales: NDArray[np.float16] | NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return scales as float32."""
        if not self.has_exponents:
            return scales.astype(np.float32)
        exponents = scales.astype(np.uint32)
        subnormal = np.uint32(0x00200000) << np.minimum(exponents, 1)
        return np.where(exponents < 2, subnormal, (exponents - 1) << 23).astype(np.uint32).view(np.float32)


# Q4_0: 32 values in 18 bytes, value = d * (q - 8).
#
#     bytes 0..1    d, f16
#     bytes 2..17   q, 4 bits each: byte i holds value i (low nibble) and value i + 16 (high nibble)
#
# Source: ggml-common.h, block_q4_0.
Q4_0 = Block32(
    name="Q4_0",
    number=2,
    file_bytes=18,
    bits=4,
    offset=8,
    layout=FileLayout(scale_at=0, weights=(Bits(at=2, width=4, planes=2, run=16),)),
)


# Q4_1: 32 values in 20 bytes, value = d * q + m.
#
#     bytes 0..1    d, f16
#     bytes 2..3    m, f16
#     bytes 4..19   q, 4 bits each: byte i holds value i (low nibble) and value i + 16 (high nibble)
#
# Source: ggml-common.h, block_q4_1.
Q4_1 = Block32(
    name="Q4_1",
    number=3,
    file_bytes=20,
    bits=4,
    offset=0,
    layout=FileLayout(scale_at=0, minimum_at=2, weights=(Bits(at=4, width=4, planes=2, run=16),)),
)


# Q5_0: 32 values in 22 bytes, value = d * (q - 16).
#
#     bytes 0..1    d, f16
#     bytes 2..5    the fifth bits, u32 little endian: bit i belongs to value i
#     bytes 6..21   the low 4 bits: byte i holds value i (low nibble) and value i + 16 (high nibble)
#
# Source: ggml-common.h, block_q5_0.
Q5_0 = Block32(
    name="Q5_0",
    number=6,
    file_bytes=22,
    bits=5,
    offset=16,
    layout=FileLayout(
        scale_at=0,
        weights=(Bits(at=6, width=4, planes=2, run=16), Bits(at=2, width=1, planes=8, run=1, runs=4, shift=4)),
    ),
)


# Q5_1: 32 values in 24 bytes, value = d * q + m.
#
#     bytes 0..1    d, f16
#     bytes 2..3    m, f16
#     bytes 4..7    the fifth bits, u32 little endian: bit i belongs to value i
#     bytes 8..23   the low 4 bits: byte i holds value i (low nibble) and value i + 16 (high nibble)
#
# Source: ggml-common.h, block_q5_1.
Q5_1 = Block32(
    name="Q5_1",
    number=7,
    file_bytes=24,
    bits=5,
    offset=0,
    layout=FileLayout(
        scale_at=0,
        minimum_at=2,
        weights=(Bits(at=8, width=4, planes=2, run=16), Bits(at=4, width=1, planes=8, run=1, runs=4, shift=4)),
    ),
)


# Q8_0: 32 values in 34 bytes, value = d * q, q signed.
#
#     bytes 0..1    d, f16
#     bytes 2..33   q, int8 each
#
# In memory q is stored xor 0x80, as q + 128 unsigned, and the block function takes 128 * sum(x) off again.
# Source: ggml-common.h, block_q8_0.
Q8_0 = Block32(
    name="Q8_0",
    number=8,
    file_bytes=34,
    bits=8,
    offset=128,
    layout=FileLayout(scale_at=0, weights=(Bits(at=2, width=8, planes=1, run=32),), weights_xor=128),
)


# IQ4_NL: 32 values in 18 bytes, value = d * table[q], q an index into a table of 16 numbers.
#
#     bytes 0..1    d, f16
#     bytes 2..17   q, 4 bits each: byte i holds value i (low nibble) and value i + 16 (high nibble)
#
# In memory q stays an index; the block function looks up table + 128 and takes 128 * sum(x) off again.
# Source: ggml-common.h, block_iq4_nl and kvalues_iq4nl.
_IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
IQ4_TABLE = tuple(value + 128 for value in _IQ4_VALUES)
IQ4_NL = Block32(
    name="IQ4_NL",
    number=20,
    file_bytes=18,
    bits=4,
    offset=128,
    table=IQ4_TABLE,
    layout=FileLayout(scale_at=0, weights=(Bits(at=2, width=4, planes=2, run=16),)),
)


# MXFP4: 32 values in 17 bytes, value = 2**(e - 127) * E2M1[q], q a float of 4 bits.
#
#     byte 0        e, the exponent of the block's scale (E8M0: no sign, no fraction)
#     bytes 1..16   q, 4 bits each: byte i holds value i (low nibble) and value i + 16 (high nibble)
#
# q has a sign, two exponent bits and one fraction bit. Twice its value is a whole number, so the block function looks
# up 2 * E2M1 + 16 and scales by 2**(e - 128), which is subnormal for e < 2. As in ggml, e = 255 is a number like the
# others (the standard has NaN there) and q = 8 is 0, not -0.
# Source: ggml-common.h, block_mxfp4 and kvalues_mxfp4; OCP Microscaling Formats (MX) specification 1.0.
_DOUBLED_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
MXFP4 = Block32(
    name="MXFP4",
    number=39,
    file_bytes=17,
    bits=4,
    offset=16,
    table=tuple(value + 16 for value in _DOUBLED_E2M1),
    layout=FileLayout(scale_at=0, scale_bytes=1, weights=(Bits(at=1, width=4, planes=2, run=16),)),
)
