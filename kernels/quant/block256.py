"""What the 256-value weight types (k-quants, IQ4_XS) share: the x16 layout and the block function of every path.

A block of 256 values has an f16 scale d and sub-blocks of 16 or 32 values, each with a whole-number scale and, in some
types, a whole-number minimum. In memory a block of 16 rows is

    d           16 x f16, one a row
    d_minimum   16 x f16, only in types that have minimums
    scales      one byte each, by pairs of sub-blocks (2p, 2p + 1): byte 32*p + 2*r + i is of row r, sub-block 2p + i
    minimums    laid out as the scales; with 4-bit scales they stand in the upper halves of the scales' bytes
    values      8 units, see quads.py

The block function, for each of B rows of activations (whole numbers x with one f32 scale a 256 values):

    acc = fma(f32(sum over j of s_j * sum((w - offset) * x)), d * scale, acc)
    acc = fma(f32(sum over j of m_j * sum(x)), -(d_minimum * scale), acc)       where there are minimums

The sums are whole numbers below 2**31, so they are exact on every path: sub-scales cost no rounding.
"""

from dataclasses import dataclass

import numpy as np

from kernels.build.toolchain import cgutils, ir
from kernels.quant.blocks import (
    PREFETCH_BYTES,
    by_groups,
    load_f16,
    passes_of,
    separate_passes,
    side_by_side,
)
from kernels.quant.quads import QUADS, ROWS, UNIT, emit_quads, pack_units, unit_bytes
from kernels.simd.vectors import I8, I64, constant, fused_multiply_add, load, prefetch

VALUES = 256
# Rows of the activations' side data, 4 bytes a lane each: the scales of the two planes, the kind, then for each plane
# sums as pairs of int16: of 16 values each (8 rows) and of 32 values each (4 rows).
SCALE, LOW_SCALE, KIND256 = range(3)
SUMS16 = (4, 16)  # first row, by plane
SUMS32 = (12, 24)
SIDE256_ROWS = 28
SIDE256_BYTES = 4 * SIDE256_ROWS


@dataclass(frozen=True)
class Block256:
    """One 256-value weight type; a value is d * s_j * (w - offset) (- d_minimum * m_j), w unsigned."""

    name: str
    number: int  # what kernels are specialised on; never reuse one
    file_bytes: int  # of a block of one row, as the file holds it
    bits: int
    sub_values: int  # 16 or 32
    max_scale: int  # the largest |s_j|
    offset: int
    has_minimum: bool
    table: tuple[int, ...] | None = None  # w by the stored number
    takes_floats = False
    values = granule = VALUES  # rows of a matrix are whole blocks
    side_bytes, kind_row = SIDE256_BYTES, KIND256  # of the activations
    planes = ("quads256", "fine256", "side256")  # where they stand in a PACKED record

    @property
    def max_weight(self):
        """The largest w."""
        return max(self.table) if self.table else (1 << self.bits) - 1

    @property
    def max_product(self):
        """The largest |s_j * (w - offset)|."""
        smallest = min(self.table) if self.table else 0
        return self.max_scale * max(self.offset - smallest, self.max_weight - self.offset)

    @property
    def signed_scales(self):
        """Scales are signed where no minimum moves the values below zero."""
        return not self.has_minimum

    @property
    def pairs(self):
        """Pairs of sub-blocks."""
        return VALUES // self.sub_values // 2

    @property
    def shares_bytes(self):
        """Whether a scale and its minimum share one byte: where a block has 16 of both, they have 4 bits each."""
        return self.has_minimum and self.sub_values == 16

    @property
    def scales_at(self):
        """Bytes before the scales in a packed block."""
        return 2 * ROWS * (2 if self.has_minimum else 1)

    @property
    def minimums_at(self):
        """Bytes before the minimums, where they have bytes of their own."""
        return self.scales_at + 2 * ROWS * self.pairs

    @property
    def values_at(self):
        """Bytes before the values."""
        return self.minimums_at + (2 * ROWS * self.pairs if self.has_minimum and not self.shares_bytes else 0)

    @property
    def packed_bytes(self):
        """Bytes of a block of 16 rows in the x16 layout."""
        return self.values_at + VALUES // UNIT * unit_bytes(self.bits)

    def pack_blocks(self, unpacked):
        """Lay out x16: see `Unpacked256` -> uint8 [groups, blocks, bytes]."""
        rows, blocks = unpacked.d.shape
        groups = -(-rows // ROWS)
        parts = [side_by_side(unpacked.d, groups)]
        scales = unpacked.scales.astype(np.uint8)
        if self.has_minimum:
            parts.append(side_by_side(unpacked.d_minimum, groups))
        if self.shares_bytes:
            scales = scales | (unpacked.minimums << 4)
        parts.append(self._pack_pairs(scales, groups))
        if self.has_minimum and not self.shares_bytes:
            parts.append(self._pack_pairs(unpacked.minimums, groups))
        units = pack_units(by_groups(unpacked.weights.reshape(rows, blocks * VALUES), groups), self.bits)
        return np.concatenate([*parts, units.reshape(groups, blocks, -1)], axis=2)

    def _pack_pairs(self, numbers, groups):
        """uint8 [rows, blocks, sub-blocks] -> uint8 [groups, blocks, 32 * pairs]."""
        blocks = numbers.shape[1]
        grouped = by_groups(numbers, groups).reshape(groups, ROWS, blocks, self.pairs, 2)
        return grouped.transpose(0, 2, 3, 1, 4).reshape(groups, blocks, 2 * ROWS * self.pairs)


@dataclass(frozen=True)
class Unpacked256:
    """The numbers of a matrix of a 256-value type."""

    d: np.ndarray  # float16 [rows, blocks]
    d_minimum: np.ndarray | None  # float16 [rows, blocks]
    scales: np.ndarray  # int16 [rows, blocks, sub-blocks]
    minimums: np.ndarray | None  # uint8 [rows, blocks, sub-blocks]
    weights: np.ndarray  # uint8 [rows, blocks, 256], the stored numbers


BLOCK256_BY_NUMBER: dict[int, Block256] = {}


def register(kind):
    """Make a type known to the block function."""
    assert kind.number not in BLOCK256_BY_NUMBER, kind.name
    BLOCK256_BY_NUMBER[kind.number] = kind
    return kind


class Block256Emitter:
    """Emits the block function for one packed block."""

    def __init__(self, builder, weight_type, make_dot, block):
        self.builder, self.type, self.block = builder, weight_type, block
        self.dot = make_dot(builder, weight_type.max_weight, weight_type.offset)
        self.rows = make_dot.rows

    def add_plane(self, accumulators, lanes, is_low):
        """Add one plane of activations; see emit_planes."""
        result = list(accumulators)
        for index, parts in enumerate(passes_of(lanes.count, ROWS // self.rows)):
            if index:
                separate_passes(self.builder)
            totals, minimums = self._totals(parts, lanes, is_low)
            for part in parts:
                chunk = slice(part * lanes.count, (part + 1) * lanes.count)
                result[chunk] = self._scale(part, lanes, is_low, totals[part], minimums[part], result[chunk])
        return result

    def _totals(self, parts, lanes, is_low):
        """The whole-number sums by part and lane: of s * (w - offset) * x, and of m * x."""
        builder, dot = self.builder, self.dot

        def slots():
            return {
                part: [cgutils.alloca_once_value(builder, dot.zero()) for _ in range(lanes.count)] for part in parts
            }

        totals, minimums = slots(), slots()
        with cgutils.for_range(builder, I64(self.type.pairs), intp=I64) as loop:
            if not is_low:
                lines = -(-self.type.packed_bytes // 64 // self.type.pairs)
                ahead = builder.add(self.block, builder.mul(loop.index, I64(64 * lines)))
                prefetch(builder, builder.add(ahead, I64(PREFETCH_BYTES)), lines)
            for part in parts:
                self._add_pair_sums(loop.index, part, lanes, is_low, totals[part], minimums[part])
            self._add_dots(loop.index, parts, lanes, totals)
        return tuple(
            {part: [builder.load(slot) for slot in slots] for part, slots in table.items()}
            for table in (totals, minimums)
        )

    def _add_pair_sums(self, pair, part, lanes, is_low, totals, minimums):
        """What needs only the sums of activations: the offsets and the minimums of a pair of sub-blocks."""
        builder, dot = self.builder, self.dot
        first_row = (SUMS16 if self.type.sub_values == 16 else SUMS32)[is_low]
        row_bytes = I64(4 * lanes.width)
        sums = builder.add(lanes.number(builder, first_row, 0), builder.mul(pair, row_bytes))
        for lane in range(lanes.count):
            place = builder.add(sums, I64(4 * lane))
            if dot.offset:
                scales = self.scale_pairs(pair, part)
                shifts = builder.mul(scales, constant(scales.type, -dot.offset))
                builder.store(dot.add_pairs(builder.load(totals[lane]), shifts, place), totals[lane])
            if self.type.has_minimum:
                numbers = self.minimum_pairs(pair, part)
                builder.store(dot.add_pairs(builder.load(minimums[lane]), numbers, place), minimums[lane])

    def _add_dots(self, pair, parts, lanes, totals):
        """Add s * sum(w * x) of a pair of sub-blocks."""
        builder, dot = self.builder, self.dot
        units_of_pair = 2 * self.type.sub_values // UNIT
        quads_of_sub_block = self.type.sub_values // 4
        scales = {part: self.scale_pairs(pair, part) for part in parts}
        first_unit = builder.mul(pair, I64(units_of_pair))
        values = builder.add(self.block, I64(self.type.values_at))
        here = builder.add(values, builder.mul(first_unit, I64(unit_bytes(self.type.bits))))
        plane = builder.add(lanes.quads, builder.mul(first_unit, I64(4 * QUADS * lanes.width)))
        quads = {part: self.weights(here, units_of_pair, part) for part in parts}
        for sub_block in range(2):
            scale = {part: dot.scale(scales[part], sub_block) for part in parts}
            sums = {part: [dot.start(builder.load(slot), scale[part]) for slot in totals[part]] for part in parts}
            for index in range(quads_of_sub_block):
                quad = sub_block * quads_of_sub_block + index
                for part in parts:
                    weights = next(quads[part])
                    for lane in range(lanes.count):
                        dot.add(sums[part][lane], weights, builder.add(plane, I64(4 * (quad * lanes.width + lane))))
            for part in parts:
                for slot, state in zip(totals[part], sums[part], strict=True):
                    builder.store(dot.finish(state), slot)

    def weights(self, address, units, part):
        """Yield the k-quads of some units, as the dot product takes them."""
        for unit in range(units):
            here = self.builder.add(address, I64(unit * unit_bytes(self.type.bits)))
            for weights in emit_quads(self.builder, here, self.type.bits, part, self.rows):
                yield self.dot.lookup(weights, self.type.table) if self.type.table else weights

    def scale_pairs(self, pair, part):
        """The scales of a pair of sub-blocks: int16 [rows][2]."""
        numbers = self._load_bytes(self.type.scales_at, pair, part)
        if self.type.shares_bytes:
            numbers = self.builder.and_(numbers, constant(numbers.type, 15))
        extend = self.builder.sext if self.type.signed_scales else self.builder.zext
        return extend(numbers, self.dot.pairs)

    def minimum_pairs(self, pair, part):
        """The minimums of a pair of sub-blocks: int16 [rows][2]."""
        if self.type.shares_bytes:
            both = self.builder.zext(self._load_bytes(self.type.scales_at, pair, part), self.dot.pairs)
            return self.builder.lshr(both, constant(both.type, 4))
        return self.builder.zext(self._load_bytes(self.type.minimums_at, pair, part), self.dot.pairs)

    def _load_bytes(self, start, pair, part):
        offset = self.builder.add(self.builder.mul(pair, I64(2 * ROWS)), I64(start + 2 * self.rows * part))
        return load(self.builder, self.builder.add(self.block, offset), ir.VectorType(I8, 2 * self.rows))

    def _scale(self, part, lanes, is_low, totals, minimums, accumulators):
        """The f32 part of the block function."""
        builder, rows = self.builder, self.rows
        d = load_f16(builder, self.block, part, rows)
        d_minimum = (
            load_f16(builder, builder.add(self.block, I64(2 * ROWS)), part, rows) if self.type.has_minimum else None
        )
        result = []
        for total, minimum, lane, accumulator in zip(totals, minimums, range(lanes.count), accumulators, strict=True):
            scale = lanes.f32(builder, LOW_SCALE if is_low else SCALE, lane, rows)
            value = fused_multiply_add(builder, builder.sitofp(total, d.type), builder.fmul(d, scale), accumulator)
            if d_minimum is not None:
                factor = builder.fneg(builder.fmul(d_minimum, scale))
                value = fused_multiply_add(builder, builder.sitofp(minimum, d.type), factor, value)
            result.append(value)
        return result
