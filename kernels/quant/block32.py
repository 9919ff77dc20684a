"""What the 32-value weight types share: the x16 layout and the block function that every path uses.

In memory 16 rows stand together (law 1: threads take whole groups). A block of 16 rows x 32 values is

    scales    16 x f16, one a row (MXFP4: 16 exponent bytes)
    minimums  16 x f16, only in types that have them
    values    one unit, see quads.py

The block function, for each of B rows of activations (whole numbers x with one f32 scale a 32 values, see
activations.py), where w is the stored number or its entry in the type's table:

    acc = fma(f32(sum((w - offset) * x)), d * scale, acc);   with minimums: acc = fma(m, scale * sum(x), acc)
"""

from dataclasses import dataclass

import numpy as np

from kernels.quant.blocks import (
    LOW_PLANE_FACTOR,
    PREFETCH_BYTES,
    by_groups,
    load_e8m0,
    load_f16,
    passes_of,
    separate_passes,
    side_by_side,
)
from kernels.quant.quads import ROWS, UNIT, emit_quads, pack_units, unit_bytes
from kernels.simd.vectors import I32, I64, constant, fused_multiply_add, load, prefetch

VALUES = UNIT
# Bytes a lane of the activations' side data, by row: f32 scale, f32 scale * sum, i32 sum, i32 kind (activations.py).
SIDE_BYTES = 16
SCALE, SCALED_SUM, _SUM, KIND = range(4)


@dataclass(frozen=True)
class Block32:
    """One 32-value weight type; a block's value is d * (w - offset) (+ m), w unsigned."""

    name: str
    number: int  # what kernels are specialised on; never reuse one
    file_bytes: int  # of a block of one row, as the file holds it
    bits: int
    offset: int
    has_minimum: bool
    table: tuple[int, ...] | None = None  # w by the stored number
    scale_format: str = "f16"  # or e8m0
    takes_floats = False
    values = granule = VALUES  # rows of a matrix are whole blocks
    side_bytes, kind_row = SIDE_BYTES, KIND  # of the activations
    planes = ("quads", "fine", "side")  # where they stand in a PACKED record

    @property
    def max_weight(self):
        """The largest w."""
        return max(self.table) if self.table else (1 << self.bits) - 1

    @property
    def scale_bytes(self):
        """Bytes of 16 rows' scales."""
        return ROWS * (1 if self.scale_format == "e8m0" else 2)

    @property
    def values_at(self):
        """Bytes before the values in a packed block."""
        return self.scale_bytes + (2 * ROWS if self.has_minimum else 0)

    @property
    def packed_bytes(self):
        """Bytes of a block of 16 rows in the x16 layout."""
        return self.values_at + unit_bytes(self.bits)

    def pack_blocks(self, scales, minimums, weights):
        """Lay out x16: scales [rows, blocks], weights uint8 [rows, blocks, 32] -> uint8 [groups, blocks, bytes]."""
        rows, blocks = scales.shape
        groups = -(-rows // ROWS)
        parts = [side_by_side(scales, groups)]
        if self.has_minimum:
            parts.append(side_by_side(minimums, groups))
        columns = by_groups(weights.reshape(rows, blocks * VALUES), groups)
        return np.concatenate([*parts, pack_units(columns, self.bits)], axis=2)


BLOCK32_BY_NUMBER: dict[int, Block32] = {}


def register(kind):
    """Make a type known to the block function."""
    assert kind.number not in BLOCK32_BY_NUMBER, kind.name
    BLOCK32_BY_NUMBER[kind.number] = kind
    return kind


class Block32Emitter:
    """Emits the block function for one packed block."""

    def __init__(self, builder, weight_type, make_dot, block):
        self.builder, self.type, self.block = builder, weight_type, block
        self.dot = make_dot(builder, weight_type.max_weight, weight_type.offset)
        self.rows = make_dot.rows

    def add_plane(self, accumulators, lanes, is_low):
        """Add one plane of activations; see emit_planes."""
        result = list(accumulators)
        if not is_low:
            ahead = self.builder.add(self.block, I64(PREFETCH_BYTES))
            prefetch(self.builder, ahead, -(-self.type.packed_bytes // 64))
        for index, parts in enumerate(passes_of(lanes.count, ROWS // self.rows)):
            if index:
                separate_passes(self.builder)
            totals = self._totals(parts, lanes)
            for part in parts:
                chunk = slice(part * lanes.count, (part + 1) * lanes.count)
                result[chunk] = self._scale(part, lanes, is_low, totals[part], result[chunk])
        return result

    def _totals(self, parts, lanes):
        """The integer sums of w * x: vectors by part and lane."""
        dot = self.dot
        sums = {part: [dot.start(dot.zero()) for _ in range(lanes.count)] for part in parts}
        quads = {part: self.weights(part) for part in parts}
        for quad in range(8):
            for part in parts:
                weights = next(quads[part])
                for lane in range(lanes.count):
                    dot.add(sums[part][lane], weights, lanes.quad(self.builder, quad, lane))
        return {part: [dot.finish(state) for state in states] for part, states in sums.items()}

    def weights(self, part):
        """Yield the k-quads, as the dot product takes them."""
        unit = self.builder.add(self.block, I64(self.type.values_at))
        for weights in emit_quads(self.builder, unit, self.type.bits, part, self.rows):
            yield self.dot.lookup(weights, self.type.table) if self.type.table else weights

    def scales(self, part):
        """The scales of some rows, as floats."""
        load_scales = load_e8m0 if self.type.scale_format == "e8m0" else load_f16
        return load_scales(self.builder, self.block, part, self.rows)

    def minimums(self, part):
        """The minimums of some rows, as floats."""
        return load_f16(self.builder, self.builder.add(self.block, I64(self.type.scale_bytes)), part, self.rows)

    def _scale(self, part, lanes, is_low, totals, accumulators):
        """The f32 part of the block function: scale the integer sums, and add the minimums."""
        builder, rows = self.builder, self.rows
        scales = self.scales(part)
        # The scaled sum of a fine block covers both planes.
        adds_minimum = self.type.has_minimum and not is_low
        minimums = self.minimums(part) if adds_minimum else None
        result = []
        for lane, total in enumerate(totals):
            scale = lanes.f32(builder, SCALE, lane, rows)
            if is_low:
                scale = builder.fmul(scale, constant(scale.type, LOW_PLANE_FACTOR))
            signed = self._without_offset(total, lanes, lane, is_low)
            value = fused_multiply_add(
                builder, builder.sitofp(signed, scale.type), builder.fmul(scales, scale), accumulators[lane]
            )
            if adds_minimum:
                value = fused_multiply_add(builder, minimums, lanes.f32(builder, SCALED_SUM, lane, rows), value)
            result.append(value)
        return result

    def _without_offset(self, total, lanes, lane, is_low):
        if self.dot.offset == 0:
            return total
        builder, shift = self.builder, self.dot.offset.bit_length() - 1
        assert self.dot.offset == 1 << shift, "offsets are powers of two"
        # The kind of a fine block is 2 * (sum of the low plane) + 1.
        number = load(builder, lanes.number(builder, KIND if is_low else _SUM, lane), I32)
        sums = self.dot.shifted(builder.ashr(number, I32(1)) if is_low else number, shift)
        return builder.sub(total, sums)
