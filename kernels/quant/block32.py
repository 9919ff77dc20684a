"""What the 32-value weight types share: the x16 layout and the block function that every path uses.

In memory 16 rows stand together (law 1: threads take whole groups). A block of 16 rows x 32 values is

    scales    16 x f16      one a row
    minimums  16 x f16      only in types that have them
    values    64-byte vectors; byte 4*r + i of k-quad q holds value k = 4*q + i of row r

so one load serves 16 rows, and a dot product has no horizontal sum. Types that hold 4 bits put k-quad q (0..3) in the
low nibbles and k-quad q + 4 in the high nibbles of vector q; a fifth bit stands in one more vector, whose byte 4*r + i
holds the bits of k-quads 0..7.

The block function, for each of B rows of activations (8- or 15-bit values x, one f32 scale a 32 values, see
activations.py):

    acc = fma(f32(sum((w - offset) * x)), d * scale, acc);   with minimums: acc = fma(m, scale * sum(x), acc)
"""

import itertools
from dataclasses import dataclass

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.extending import intrinsic

from kernels.dot import DOTS_BY_TIER
from kernels.simd import F16, F32, FLOATS_BY_LANES, I8, I16, I32, I64, call, constant, fused_multiply_add, load, splat

VALUES = 32
ROWS = 16
# Bytes a lane of the activations' side data: f32 scale, f32 scale * sum, i32 sum, i32 kind (see activations.py).
SIDE_BYTES = 16


@dataclass(frozen=True)
class Block32:
    """One 32-value weight type; a block's value is d * (w - offset) (+ m), w in [0, max_weight]."""

    name: str
    number: int  # what kernels are specialised on; never reuse one
    file_bytes: int  # of a block of one row, as the file holds it
    bits: int
    offset: int
    has_minimum: bool
    takes_floats = False

    @property
    def max_weight(self):
        return (1 << self.bits) - 1

    @property
    def values_at(self):
        """Bytes before the values in a packed block."""
        return ROWS * 2 * (2 if self.has_minimum else 1)

    @property
    def packed_bytes(self):
        """Bytes of a block of 16 rows in the x16 layout."""
        return self.values_at + ROWS * VALUES * self.bits // 8

    def check(self, columns: int) -> bool:
        """Tell whether rows of this length can be packed."""
        return columns % VALUES == 0

    def pack_blocks(self, scales, minimums, weights):
        """Lay out x16: scales f16 [rows, blocks], weights uint8 [rows, blocks, 32] -> [groups, blocks, bytes]."""
        rows, blocks = scales.shape
        groups = -(-rows // ROWS)
        packed = np.zeros((groups, blocks, self.packed_bytes), np.uint8)
        packed[:, :, : 2 * ROWS] = _f16_rows(scales, groups)
        if self.has_minimum:
            packed[:, :, 2 * ROWS : 4 * ROWS] = _f16_rows(minimums, groups)
        quads = _by_groups(weights, groups, self.offset).reshape(groups, ROWS, blocks, 8, 4).transpose(0, 2, 3, 1, 4)
        packed[:, :, self.values_at :] = self._pack_quads(quads.reshape(groups, blocks, 8, 64))
        return packed

    def _pack_quads(self, quads):
        """uint8 [groups, blocks, 8 k-quads, 64] -> the bytes of the values."""
        groups, blocks = quads.shape[:2]
        if self.bits == 8:
            return quads.reshape(groups, blocks, -1)
        nibbles = quads & 15
        values = (nibbles[:, :, :4] | (nibbles[:, :, 4:] << 4)).reshape(groups, blocks, -1)
        if self.bits == 4:
            return values
        fifth = np.bitwise_or.reduce((quads >> 4) << np.arange(8, dtype=np.uint8)[:, None], axis=2)
        return np.concatenate([values, fifth], axis=2)

    def emit_quads(self, builder, block, part, rows):
        """Yield (k-quad, its weights as unsigned bytes) for `rows` rows, part by part of the 64-byte vectors."""
        vector = ir.VectorType(I8, 4 * rows)

        def values(index):
            return load(builder, builder.add(block, I64(self.values_at + 64 * index + 4 * rows * part)), vector)

        if self.bits == 8:
            yield from ((quad, values(quad)) for quad in range(8))
            return
        fifth = values(4) if self.bits == 5 else None
        for index in range(4):
            both = values(index)
            for quad, nibble in ((index, builder.and_(both, constant(vector, 15))), (index + 4, _high(builder, both))):
                yield quad, nibble if fifth is None else builder.or_(nibble, _fifth_bit(builder, fifth, quad))


def _f16_rows(values, groups):
    """f16 [rows, blocks] -> the bytes of 16 rows side by side, uint8 [groups, blocks, 32]."""
    blocks = values.shape[1]
    return (
        np.ascontiguousarray(_by_groups(values, groups, 0).transpose(0, 2, 1))
        .view(np.uint8)
        .reshape(groups, blocks, 32)
    )


def _by_groups(values, groups, filler):
    """Pad rows to whole groups of 16: [rows, ...] -> [groups, 16, ...]."""
    missing = groups * ROWS - len(values)
    if missing:
        values = np.concatenate([values, np.full((missing, *values.shape[1:]), filler, values.dtype)])
    return values.reshape(groups, ROWS, *values.shape[1:])


def _shift_right(builder, vector, bits):
    """Shift bytes right by shifting 16-bit pairs; the caller masks what came over from the neighbour."""
    pairs = ir.VectorType(I16, vector.type.count // 2)
    return builder.bitcast(builder.lshr(builder.bitcast(vector, pairs), constant(pairs, bits)), vector.type)


def _shift_left(builder, vector, bits):
    pairs = ir.VectorType(I16, vector.type.count // 2)
    return builder.bitcast(builder.shl(builder.bitcast(vector, pairs), constant(pairs, bits)), vector.type)


def _high(builder, both):
    return builder.and_(_shift_right(builder, both, 4), constant(both.type, 15))


def _fifth_bit(builder, fifth, quad):
    """Bit `quad` of each byte, moved to bit 4."""
    moved = _shift_left(builder, fifth, 4 - quad) if quad <= 4 else _shift_right(builder, fifth, quad - 4)
    return builder.and_(moved, constant(fifth.type, 16))


BLOCK32_BY_NUMBER: dict[int, Block32] = {}


def register(kind):
    """Make a type known to the block function."""
    assert kind.number not in BLOCK32_BY_NUMBER, kind.name
    BLOCK32_BY_NUMBER[kind.number] = kind
    return kind


@intrinsic(prefer_literal=True)
def accumulate_block32(typingctx, accumulators, block, quads, fine, side, kind, lanes, tier):
    """Add one block to the accumulators of `lanes` rows of activations.

    accumulators: tuple of lanes * parts float vectors, [part][lane]; block: address of a packed block;
    quads, fine: addresses of int8 [8][lanes][4]; side: address of the side data [4][lanes].
    """
    weight_type, width = BLOCK32_BY_NUMBER[kind.literal_value], lanes.literal_value
    make_dot = DOTS_BY_TIER[tier.literal_value]

    def codegen(context, builder, signature, arguments):
        values, block, quads, fine, side = arguments[:5]
        values = cgutils.unpack_tuple(builder, values, accumulators.count)
        for part in range(ROWS // make_dot.rows):
            if part:
                # Else LLVM keeps every broadcast activation of the first part for the second, on the stack.
                builder.fence("seq_cst", targetscope="singlethread")
            chunk = slice(part * width, (part + 1) * width)
            totals = _emit_totals(builder, weight_type, make_dot, part, block, quads, fine, side, width)
            values[chunk] = _emit_scaling(builder, weight_type, part, block, side, values[chunk], totals)
        return cgutils.pack_array(builder, values)

    return accumulators(accumulators, types.uintp, types.uintp, types.uintp, types.uintp, kind, lanes, tier), codegen


def _emit_totals(builder, weight_type, make_dot, part, block, quads, fine, side, width):
    """The integer sums of (w - offset) * x for each lane: one part of the rows."""
    dot = make_dot(builder, weight_type.max_weight, weight_type.offset)
    weights = list(weight_type.emit_quads(builder, block, part, make_dot.rows))

    def sums(plane, lanes):
        states = {lane: dot.zero() for lane in lanes}
        for (quad, vector), lane in itertools.product(weights, lanes):
            states[lane] = dot.add(states[lane], vector, builder.add(plane, I64(4 * (quad * width + lane))))
        return [dot.total(state) for state in states.values()]

    totals = [cgutils.alloca_once_value(builder, total) for total in sums(quads, range(width))]
    kinds = load(builder, _side(builder, side, 3, 0, width), ir.VectorType(I32, width))
    any_fine = call(builder, f"llvm.vector.reduce.or.v{width}i32", I32, [kinds])
    with builder.if_then(builder.icmp_signed("!=", any_fine, I32(0)), likely=False):
        for lane, total in enumerate(totals):
            is_fine = builder.icmp_signed("!=", builder.extract_element(kinds, I32(lane)), I32(0))
            with builder.if_then(is_fine):
                high = builder.shl(builder.load(total), constant(builder.load(total).type, 7))
                builder.store(builder.add(high, sums(fine, [lane])[0]), total)
    return [
        dot.without_offset(builder.load(total), _side(builder, side, 2, lane, width))
        for lane, total in enumerate(totals)
    ]


def _emit_scaling(builder, weight_type, part, block, side, accumulators, totals):
    """The f32 part of the block function: scale the integer sums, and add the minimums."""
    width, rows = len(accumulators), totals[0].type.count

    def row_vector(index):
        halves = load(builder, builder.add(block, I64(2 * ROWS * index + 2 * rows * part)), ir.VectorType(F16, rows))
        return builder.fpext(halves, ir.VectorType(F32, rows))

    def lane_number(row, lane):
        return splat(builder, load(builder, _side(builder, side, row, lane, width), F32), rows)

    scales = row_vector(0)
    minimums = row_vector(1) if weight_type.has_minimum else None
    result = []
    for lane, total in enumerate(totals):
        scale = builder.fmul(scales, lane_number(0, lane))
        value = fused_multiply_add(builder, builder.sitofp(total, scales.type), scale, accumulators[lane])
        if minimums is not None:
            value = fused_multiply_add(builder, minimums, lane_number(1, lane), value)
        result.append(value)
    return result


def _side(builder, side, row, lane, width):
    """The address of one number of a lane's side data."""
    return builder.add(side, I64(4 * (row * width + lane)))


def accumulator_type(lanes, tier):
    """The tuple of vectors that holds the sums of 16 rows for `lanes` rows of activations."""
    rows = DOTS_BY_TIER[tier].rows
    return types.UniTuple(FLOATS_BY_LANES[rows], lanes * (ROWS // rows))
