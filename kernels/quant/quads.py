"""The x16 layout of weight values: units of 32 values of 16 rows, for values of 2, 3, 4, 5, 6 and 8 bits.

A k-quad is four neighbouring values k, k + 1, k + 2, k + 3 of each of 16 rows: 64 bytes, byte 4*r + i for value k + i
of row r, so one load serves 16 rows and a dot product has no horizontal sum. A unit has 8 k-quads, and as many vectors
of 64 bytes as its values have bits.

    2, 4, 8 bits  vector v holds k-quads v, v + bits, v + 2 * bits, ..., the first in the lowest bits: of 4-bit values
                  k-quads v and v + 4 in the low and high nibbles of vector v
    3 bits        the lower two bits of every value as 2-bit values, then the third bits as 1-bit values
    5 bits        k-quads 0, 1, 3, 4, 6 in the low 5 bits of vectors 0 to 4. Above them, lowest bits first: k-quad 2 in
                  bits 5..7 of vector 0 and 5..6 of 1, k-quad 5 in bits 5..7 of vector 2 and 5..6 of 3, k-quad 7 in bits
                  5..7 of vector 4, bit 7 of 1 and bit 7 of 3
    6 bits        k-quads 0, 1, 2, 4, 5, 6 in the low 6 bits of vectors 0 to 5. Above them, lowest bits first: k-quad 3
                  in bits 6..7 of vectors 0, 1 and 2, k-quad 7 in those of vectors 3, 4 and 5

So of 5 and 6 bits most k-quads need a mask and nothing else.
"""

from dataclasses import dataclass

import numpy as np

from kernels.build.toolchain import ir
from kernels.simd.vectors import I8, I16, I64, constant, load

ROWS = 16
UNIT = 32  # values of a row
QUADS = 8  # k-quads of a unit


@dataclass(frozen=True)
class Piece:
    """`width` bits of every value of a k-quad: bits `shift` and up of it, bits `at` and up of the bytes of a vector."""

    vector: int
    at: int
    shift: int
    width: int

    @property
    def mask(self):
        """The bits of a value that it has."""
        return ((1 << self.width) - 1) << self.shift


def _fields(*widths):
    """The pieces of each k-quad where values have fields of these widths, the lowest bits first."""
    pieces: list[tuple[Piece, ...]] = [()] * QUADS
    vector = shift = 0
    for width in widths:
        for quad in range(QUADS):
            pieces[quad] += (Piece(vector + quad % width, quad // width * width, shift, width),)
        vector, shift = vector + width, shift + width
    return tuple(pieces)


def _low(vector, bits):
    return (Piece(vector, 0, 0, bits),)


def _above(*pieces):
    """Pieces of a value that follow each other, as (vector, at, width)."""
    shift, result = 0, []
    for vector, at, width in pieces:
        result.append(Piece(vector, at, shift, width))
        shift += width
    return tuple(result)


PIECES_BY_BITS = {
    2: _fields(2),
    3: _fields(2, 1),
    4: _fields(4),
    5: (
        *(_low(0, 5), _low(1, 5), _above((0, 5, 3), (1, 5, 2))),
        *(_low(2, 5), _low(3, 5), _above((2, 5, 3), (3, 5, 2))),
        *(_low(4, 5), _above((4, 5, 3), (1, 7, 1), (3, 7, 1))),
    ),
    6: (
        *(_low(0, 6), _low(1, 6), _low(2, 6), _above((0, 6, 2), (1, 6, 2), (2, 6, 2))),
        *(_low(3, 6), _low(4, 6), _low(5, 6), _above((3, 6, 2), (4, 6, 2), (5, 6, 2))),
    ),
    8: _fields(8),
}


def unit_bytes(bits):
    """Bytes of a unit of 16 rows."""
    return ROWS * UNIT * bits // 8


def pack_units(weights, bits):
    """Lay out x16: uint8 [groups, 16, columns] -> uint8 [groups, columns / 32, bytes of a unit]."""
    groups, _, columns = weights.shape
    units = columns // UNIT
    quads = weights.reshape(groups, ROWS, units, QUADS, 4).transpose(0, 2, 3, 1, 4).reshape(groups, units, QUADS, 64)
    vectors = np.zeros((groups, units, bits, 64), np.uint8)
    for quad, pieces in enumerate(PIECES_BY_BITS[bits]):
        for piece in pieces:
            vectors[:, :, piece.vector] |= (quads[:, :, quad] & piece.mask) >> piece.shift << piece.at
    return vectors.reshape(groups, units, unit_bytes(bits))


def by_groups(values, groups):
    """Pad rows with zeros to whole groups of 16: [rows, ...] -> [groups, 16, ...]."""
    missing = groups * ROWS - len(values)
    if missing:
        values = np.concatenate([values, np.zeros((missing, *values.shape[1:]), values.dtype)])
    return values.reshape(groups, ROWS, *values.shape[1:])


def side_by_side(values, groups):
    """[rows, blocks, ...] -> the bytes of 16 rows, [...][16], in one row a block: uint8 [groups, blocks, bytes]."""
    grouped = by_groups(values, groups)
    last = np.ascontiguousarray(np.moveaxis(grouped, 1, -1))
    return last.view(np.uint8).reshape(groups, values.shape[1], -1)


def emit_quads(builder, unit, bits, part, rows):
    """Yield the 8 k-quads of a unit as vectors of unsigned bytes, for `rows` rows from row part * rows on."""
    vector = ir.VectorType(I8, 4 * rows)
    loaded = {}
    for pieces in PIECES_BY_BITS[bits]:
        value = None
        for piece in pieces:
            if piece.vector not in loaded:
                address = builder.add(unit, I64(64 * piece.vector + 4 * rows * part))
                loaded[piece.vector] = load(builder, address, vector)
            bits_of_piece = _take(builder, loaded[piece.vector], piece)
            value = bits_of_piece if value is None else builder.or_(value, bits_of_piece)
        yield value


def _take(builder, vector, piece):
    """Move a piece's bits to where the value has them."""
    if piece.width == 8:
        return vector
    return builder.and_(shift_bytes(builder, vector, piece.shift - piece.at), constant(vector.type, piece.mask))


def shift_bytes(builder, vector, left):
    """Shift each byte left (right where negative); the caller masks what came over from the neighbour.

    Processors have no shifts of bytes, so pairs of bytes are shifted.
    """
    if left == 0:
        return vector
    pairs = ir.VectorType(I16, vector.type.count // 2)
    wide = builder.bitcast(vector, pairs)
    moved = builder.shl(wide, constant(pairs, left)) if left > 0 else builder.lshr(wide, constant(pairs, -left))
    return builder.bitcast(moved, vector.type)
