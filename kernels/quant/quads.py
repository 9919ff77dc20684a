"""The x16 layout of weight values: units of 32 values of 16 rows, for values of 2, 3, 4, 5, 6 and 8 bits.

A k-quad is four neighbouring values k, k + 1, k + 2, k + 3 of each of 16 rows: 64 bytes, byte 4*r + i for value k + i
of row r, so one load serves 16 rows and a dot product has no horizontal sum. A unit has 8 k-quads. Their bits stand in
fields: vector v (64 bytes) of a field of `width` bits holds k-quads v, v + width, v + 2 * width, ..., the first in the
lowest bits. So 4-bit values take four vectors, with k-quads v and v + 4 in the low and high nibbles of vector v.
"""

from dataclasses import dataclass

import numpy as np

from kernels.simd import I8, I16, I64, constant, load
from kernels.toolchain import ir

ROWS = 16
UNIT = 32  # values of a row
QUADS = 8  # k-quads of a unit


@dataclass(frozen=True)
class Field:
    """`width` bits of every value, which are bits `shift` and up of it."""

    width: int
    shift: int


FIELDS_BY_BITS = {
    2: (Field(2, 0),),
    3: (Field(2, 0), Field(1, 2)),
    4: (Field(4, 0),),
    5: (Field(4, 0), Field(1, 4)),
    6: (Field(4, 0), Field(2, 4)),
    8: (Field(8, 0),),
}


def unit_bytes(bits):
    """Bytes of a unit of 16 rows."""
    return ROWS * UNIT * bits // 8


def pack_units(weights, bits):
    """Lay out x16: uint8 [groups, 16, columns] -> uint8 [groups, columns / 32, bytes of a unit]."""
    groups, _, columns = weights.shape
    units = columns // UNIT
    quads = weights.reshape(groups, ROWS, units, QUADS, 4).transpose(0, 2, 3, 1, 4).reshape(groups, units, QUADS, 64)
    fields = [_pack_field(quads, field) for field in FIELDS_BY_BITS[bits]]
    return np.concatenate(fields, axis=2).reshape(groups, units, unit_bytes(bits))


def _pack_field(quads, field):
    """uint8 [groups, units, 8, 64] -> uint8 [groups, units, width, 64]."""
    groups, units = quads.shape[:2]
    values = (quads >> field.shift) & ((1 << field.width) - 1)
    # Axis 2: which of the quads that share a vector; axis 3: the vector.
    shared = values.reshape(groups, units, QUADS // field.width, field.width, 64)
    shifts = (np.arange(QUADS // field.width) * field.width).astype(np.uint8)[:, None, None]
    return np.bitwise_or.reduce(shared << shifts, axis=2)


def emit_quads(builder, unit, bits, part, rows):
    """Yield the 8 k-quads of a unit as vectors of unsigned bytes, for `rows` rows from row part * rows on."""
    vector = ir.VectorType(I8, 4 * rows)
    loaded = {}

    def packed(field, start, index):
        if (field, index) not in loaded:
            address = builder.add(unit, I64(start + 64 * index + 4 * rows * part))
            loaded[field, index] = load(builder, address, vector)
        return loaded[field, index]

    for quad in range(QUADS):
        value, start = None, 0
        for field in FIELDS_BY_BITS[bits]:
            from_bit = quad // field.width * field.width
            bits_of_field = _take(builder, packed(field, start, quad % field.width), from_bit, field)
            value = bits_of_field if value is None else builder.or_(value, bits_of_field)
            start += 64 * field.width
        yield value


def _take(builder, vector, from_bit, field):
    """Move a field's bits from bit `from_bit` of each byte to where the value has them."""
    if field.width == 8:
        return vector
    moved = _shift(builder, vector, field.shift - from_bit)
    return builder.and_(moved, constant(vector.type, ((1 << field.width) - 1) << field.shift))


def _shift(builder, vector, left):
    """Shift bytes by shifting 16-bit pairs; the caller masks what came over from the neighbour."""
    if left == 0:
        return vector
    pairs = ir.VectorType(I16, vector.type.count // 2)
    wide = builder.bitcast(vector, pairs)
    moved = builder.shl(wide, constant(pairs, left)) if left > 0 else builder.lshr(wide, constant(pairs, -left))
    return builder.bitcast(moved, vector.type)
