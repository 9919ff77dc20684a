"""The block function of quantized weights on vectors: a block of 16 rows of weights times some rows of activations.

What a block function computes is drawn in block32.py and block256.py; here code for it is emitted, for every type and
tier. A lane is one row of activations.

A block of activations has its whole numbers in one plane, `quads`; a fine block has a second, `fine`, for the lower
seven bits of numbers of 15 bits (see activations.py). The second plane counts as one more block of activations, with a
scale 128 times smaller, added right after the first.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from kernels.build.toolchain import cgutils, ir, types
from kernels.quant.block32 import KIND, SCALE, SCALED_SUM, SUM, Block32
from kernels.quant.block256 import LOW_SCALE, SUMS16, SUMS32
from kernels.quant.block256 import SCALE as SCALE256
from kernels.quant.quads import QUADS, ROWS, UNIT, emit_quads, unit_bytes
from kernels.simd.halves import load_e8m0, load_f16
from kernels.simd.tiers import TIERS_BY_NUMBER
from kernels.simd.vectors import (
    F32,
    FLOATS_BY_LANES,
    I8,
    I32,
    I64,
    call,
    constant,
    fused_multiply_add,
    load,
    prefetch,
    splat,
    stack_array,
)

LOW_PLANE_FACTOR = 1 / 128
# How many bytes ahead of their use weights are prefetched. Every line of weights takes some dozens of instructions, so
# the processor looks ahead too little by itself. Measured on Zen 3: 1024 to 2048 differ little; 4096 is slower by 5 to
# 9 % at one row (Q4_0, Q4_K, Q5_K, Q6_K, Q8_0), 512 too (Q4_0, Q4_K); without it, eight rows are slower by 2 to 14 %.
PREFETCH_BYTES = 1536
# Lanes up to which all rows of a block fit in the registers of a processor with 16 of them.
_LANES_OF_WHOLE_BLOCK = 4


@dataclass(frozen=True)
class Lanes:
    """Some lanes of a tile: where their numbers stand.

    quads: address of the plane's int8 [k-quads][width][4]; side: address of the side data [rows][width], 4 bytes each;
    both already moved to the first of `count` lanes.
    """

    quads: Any
    side: Any
    count: int
    width: int

    def quad(self, builder, quad, lane):
        """The address of one k-quad of one lane."""
        return builder.add(self.quads, I64(4 * (quad * self.width + lane)))

    def number(self, builder, row, lane):
        """The address of one number of a lane's side data."""
        return builder.add(self.side, I64(4 * (row * self.width + lane)))

    def f32(self, builder, row, lane, rows):
        """One float of a lane's side data, in `rows` lanes of a vector."""
        return splat(builder, load(builder, self.number(builder, row, lane), F32), rows)


def passes_of(count, parts):
    """Cut the (part, lane) pairs into passes that fit in the registers: a list of lists of parts."""
    if parts == 1 or count <= _LANES_OF_WHOLE_BLOCK:
        return [list(range(parts))]
    return [[part] for part in range(parts)]


def separate_passes(builder):
    """Keep LLVM from storing what the first pass has unpacked on the stack, for the second pass."""
    builder.fence("seq_cst", targetscope="singlethread")


def emit_planes(builder, accumulators, quads, fine, side, kind_row, width, add_plane):
    """Add the planes of a block to the accumulators (vectors, [part][lane]); returns the new ones.

    add_plane(accumulators, lanes, is_low) emits the addition of one plane for some lanes. Fine blocks are rare.
    """
    result = add_plane(accumulators, Lanes(quads, side, width, width), False)
    kinds_at = builder.add(side, I64(4 * kind_row * width))
    kinds = load(builder, kinds_at, ir.VectorType(I32, width))
    any_fine = call(builder, f"llvm.vector.reduce.or.v{width}i32", I32, [kinds])
    vector, parts = result[0].type, len(result) // width
    stored = [cgutils.alloca_once_value(builder, value) for value in result]
    with builder.if_then(builder.icmp_signed("!=", any_fine, I32(0)), likely=False):
        separate_passes(builder)
        lanes_type = ir.ArrayType(ir.ArrayType(vector, width), parts)
        shelf = stack_array(builder, lanes_type)
        places = [(part, lane) for part in range(parts) for lane in range(width)]
        for (part, lane), value in zip(places, result, strict=True):
            builder.store(value, builder.gep(shelf, [I32(0), I32(part), I32(lane)]))
        with cgutils.for_range(builder, I64(width), intp=I64) as loop:
            offset = builder.mul(loop.index, I64(4))
            kind = load(builder, builder.add(kinds_at, offset), I32)
            with builder.if_then(builder.icmp_signed("!=", kind, I32(0))):
                one_lane = Lanes(builder.add(fine, offset), builder.add(side, offset), 1, width)
                shelves = [builder.gep(shelf, [I32(0), I32(part), loop.index]) for part in range(parts)]
                added = add_plane([builder.load(place) for place in shelves], one_lane, True)
                for value, place in zip(added, shelves, strict=True):
                    builder.store(value, place)
        for (part, lane), place in zip(places, stored, strict=True):
            builder.store(builder.load(builder.gep(shelf, [I32(0), I32(part), I32(lane)])), place)
    return [builder.load(place) for place in stored]


def accumulator_type(lanes, tier):
    """The tuple of vectors that holds the sums of 16 rows for `lanes` rows of activations."""
    rows = TIERS_BY_NUMBER[tier].dot.rows
    return types.UniTuple(FLOATS_BY_LANES[rows], lanes * (ROWS // rows))


class BlockEmitter(ABC):
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
            sums = self._sums(parts, lanes, is_low)
            for part in parts:
                chunk = slice(part * lanes.count, (part + 1) * lanes.count)
                result[chunk] = self._scaled(part, lanes, is_low, sums[part], result[chunk])
        return result

    @abstractmethod
    def _sums(self, parts, lanes, is_low):
        """The whole-number sums by part."""

    @abstractmethod
    def _scaled(self, part, lanes, is_low, sums, accumulators):
        """The f32 part of the block function: the accumulators of a part with its sums added, scaled."""

    def weights_of(self, unit, part):
        """Yield the k-quads of the unit at an address, as the dot product takes them."""
        for weights in emit_quads(self.builder, unit, self.type.bits, part, self.rows):
            yield self.dot.lookup(weights, self.type.table) if self.type.table else weights

    def load_f16(self, at, part):
        """`rows` of 16 f16 numbers that stand `at` bytes into the block, as floats."""
        return load_f16(self.builder, self.builder.add(self.block, I64(at + 2 * self.rows * part)), self.rows)


class Block32Emitter(BlockEmitter):
    """The block function of 32-value types."""

    def add_plane(self, accumulators, lanes, is_low):
        """See BlockEmitter."""
        if not is_low:
            ahead = self.builder.add(self.block, I64(PREFETCH_BYTES))
            prefetch(self.builder, ahead, -(-self.type.packed_bytes // 64))
        return super().add_plane(accumulators, lanes, is_low)

    def _sums(self, parts, lanes, is_low):
        """sum(w * x) by part and lane."""
        dot = self.dot
        sums = {part: [dot.start(dot.zero()) for _ in range(lanes.count)] for part in parts}
        quads = {part: self.weights(part) for part in parts}
        for quad in range(QUADS):
            for part in parts:
                weights = next(quads[part])
                for lane in range(lanes.count):
                    dot.add(sums[part][lane], weights, lanes.quad(self.builder, quad, lane))
        return {part: [dot.finish(state) for state in states] for part, states in sums.items()}

    def weights(self, part):
        """Yield the block's k-quads, as the dot product takes them."""
        return self.weights_of(self.builder.add(self.block, I64(self.type.values_at)), part)

    def scales(self, part):
        """The scales of some rows, as floats."""
        if not self.type.has_exponents:
            return self.load_f16(0, part)
        return load_e8m0(self.builder, self.builder.add(self.block, I64(self.rows * part)), self.rows)

    def minimums(self, part):
        """The minimums of some rows, as floats."""
        return self.load_f16(self.type.scale_bytes, part)

    def _scaled(self, part, lanes, is_low, sums, accumulators):
        """See BlockEmitter; adds the minimums too, with the plain plane, whose scaled sum of x covers both planes."""
        builder, rows = self.builder, self.rows
        scales = self.scales(part)
        adds_minimum = self.type.has_minimum and not is_low
        minimums = self.minimums(part) if adds_minimum else None
        result = []
        for lane, total in enumerate(sums):
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
        """sum((w - offset) * x) = sum(w * x) - offset * sum(x)."""
        if self.dot.offset == 0:
            return total
        builder, shift = self.builder, self.dot.offset.bit_length() - 1
        assert self.dot.offset == 1 << shift, "offsets are powers of two"
        # The kind of a fine block is 2 * (sum of the low plane) + 1.
        number = load(builder, lanes.number(builder, KIND if is_low else SUM, lane), I32)
        sums = self.dot.shifted(builder.ashr(number, I32(1)) if is_low else number, shift)
        return builder.sub(total, sums)


class Block256Emitter(BlockEmitter):
    """The block function of 256-value types."""

    def _sums(self, parts, lanes, is_low):
        """By part, for each lane: sum over j of s_j * sum((w - offset) * x), and sum over j of m_j * sum(x)."""
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
        loaded = [
            {part: [builder.load(slot) for slot in slots] for part, slots in table.items()}
            for table in (totals, minimums)
        ]
        return {part: [table[part] for table in loaded] for part in parts}

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
            yield from self.weights_of(self.builder.add(address, I64(unit * unit_bytes(self.type.bits))), part)

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

    def _scaled(self, part, lanes, is_low, sums, accumulators):
        """See BlockEmitter."""
        builder, rows = self.builder, self.rows
        d = self.load_f16(0, part)
        d_minimum = self.load_f16(2 * ROWS, part) if self.type.has_minimum else None
        result = []
        for lane, (total, minimum, value) in enumerate(zip(*sums, accumulators, strict=True)):
            scale = lanes.f32(builder, LOW_SCALE if is_low else SCALE256, lane, rows)
            value = fused_multiply_add(builder, builder.sitofp(total, d.type), builder.fmul(d, scale), value)
            if d_minimum is not None:
                factor = builder.fneg(builder.fmul(d_minimum, scale))
                value = fused_multiply_add(builder, builder.sitofp(minimum, d.type), factor, value)
            result.append(value)
        return result


def block_emitter(builder, weight_type, make_dot, block):
    """What emits the block function of a type for the packed block at an address; make_dot: a tier's dot product."""
    emitter = Block32Emitter if isinstance(weight_type, Block32) else Block256Emitter
    return emitter(builder, weight_type, make_dot, block)
