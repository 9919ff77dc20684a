"""The block functions on int8 matrix tiles: 16 rows of weights times 16 rows of activations at a time.

They do the operations of accumulate_block in the same order, so they give the same bits. A
block is unpacked once for all its tiles of activations, to signed bytes in the x16 layout, ready to be a B tile:

    blocks of 32    w - offset                    1024 / 2 bytes
    blocks of 256   s * (w - offset) = 128 * h + l, in two planes of 4096 bytes, h first; where that fits in a signed
                    byte, in one

Whole-number sums of the planes join exactly: 128 * sum(h * x) + sum(l * x).
"""

from kernels.build.toolchain import cgutils, intrinsic, ir, types
from kernels.quant.block32 import SCALE, SCALED_SUM
from kernels.quant.block256 import LOW_SCALE, SUMS16, SUMS32, VALUES
from kernels.quant.block256 import SCALE as SCALE256
from kernels.quant.block_functions import LOW_PLANE_FACTOR, Lanes, block_emitter
from kernels.quant.quads import QUADS, ROWS, UNIT, unit_bytes
from kernels.quant.weight_types import TYPES_BY_NUMBER
from kernels.simd.amx import (
    A32,
    A64,
    B32,
    B64,
    SUMS,
    TILE_BYTES,
    TOKENS,
    load_tile,
    multiply_tiles,
    store_tile,
    zero_tile,
)
from kernels.simd.dot import Avx512Dot
from kernels.simd.vectors import F32, I8, I16, I32, I64, constant, fused_multiply_add, load, store

PLANE_BYTES = ROWS * VALUES
# Scratch of a thread: two unpacked planes and two tiles of sums.
SCRATCH_BYTES = 2 * PLANE_BYTES + 2 * TILE_BYTES
_BYTES, _WORDS = ir.VectorType(I8, 64), ir.VectorType(I16, 64)
_INTS, _FLOATS = ir.VectorType(I32, ROWS), ir.VectorType(F32, ROWS)


def _signature(arguments, kind):
    return types.none(*[types.uintp] * arguments, kind)


@intrinsic(prefer_literal=True)
def unpack_block(typingctx, block, scratch, kind):
    """Unpack one packed block, a block of 256 times the scales of its sub-blocks, to the scratch."""
    weight_type = TYPES_BY_NUMBER[kind.literal_value]

    def codegen(context, builder, signature, arguments):
        block, scratch = arguments[:2]
        emitter = block_emitter(builder, weight_type, Avx512Dot, block)
        if weight_type.values == UNIT:
            _unpack_unit(builder, emitter, scratch)
        else:
            with cgutils.for_range(builder, I64(weight_type.pairs), intp=I64) as loop:
                _unpack_pair(builder, emitter, loop.index, scratch)
        return context.get_dummy_value()

    return _signature(2, kind), codegen


def _unpack_unit(builder, emitter, scratch):
    """Unpack a block of 32."""
    for quad, weights in enumerate(emitter.weights(0)):
        signed = builder.sub(weights, constant(_BYTES, emitter.type.offset))
        store(builder, signed, builder.add(scratch, I64(64 * quad)))


def _unpack_pair(builder, emitter, pair, scratch):
    """Unpack a pair of sub-blocks."""
    kind = emitter.type
    units = 2 * kind.sub_values // UNIT
    first_unit = builder.mul(pair, I64(units))
    values = builder.add(emitter.block, I64(kind.values_at))
    packed = builder.add(values, builder.mul(first_unit, I64(unit_bytes(kind.bits))))
    plane = builder.add(scratch, builder.mul(first_unit, I64(64 * QUADS)))
    scales = [_spread(builder, emitter.scale_pairs(pair, 0), sub_block) for sub_block in range(2)]
    for quad, weights in enumerate(emitter.weights(packed, units, 0)):
        signed = builder.sub(builder.zext(weights, _WORDS), constant(_WORDS, kind.offset))
        product = builder.mul(signed, scales[quad // (kind.sub_values // 4)])
        place = builder.add(plane, I64(64 * quad))
        if planes_of(kind) == 1:
            store(builder, builder.trunc(product, _BYTES), place)
            continue
        store(builder, builder.trunc(builder.ashr(product, constant(_WORDS, 7)), _BYTES), place)
        low = builder.and_(product, constant(_WORDS, 127))
        store(builder, builder.trunc(low, _BYTES), builder.add(place, I64(PLANE_BYTES)))


def _spread(builder, pairs, sub_block):
    """The scales of one sub-block, int16, for each of the four values of a row."""
    chosen = [2 * row + sub_block for row in range(ROWS) for _ in range(4)]
    mask = ir.Constant(ir.VectorType(I32, 64), chosen)
    return builder.shuffle_vector(pairs, ir.Constant(pairs.type, ir.Undefined), mask)


def planes_of(kind):
    """Planes of signed bytes that a block of 256 is unpacked to."""
    return 1 if kind.max_product <= 127 else 2


@intrinsic(prefer_literal=True)
def add_block(typingctx, accumulators, block, scratch, quads, fine, side, kind):
    """Add one unpacked block to float32 [16 tokens][16 rows].

    quads, fine: addresses of the tile's planes at the block: [16][32], or [4][16][64] of a block of 256; side:
    [side_bytes / 4][16].
    """
    weight_type = TYPES_BY_NUMBER[kind.literal_value]
    make_adder = _Adder32 if weight_type.values == UNIT else _Adder256

    def codegen(context, builder, signature, arguments):
        accumulators, block, scratch, quads, fine, side = arguments[:6]
        emitter = block_emitter(builder, weight_type, Avx512Dot, block)
        products = builder.add(scratch, I64(2 * PLANE_BYTES))

        def add_plane(is_low):
            adder = make_adder(builder, emitter, is_low)
            adder.multiply(fine if is_low else quads, scratch, products)

            def scale_token(token, lane):
                row = builder.mul(token, I64(64))
                place = builder.add(accumulators, row)
                value = adder.scaled(lane, builder.add(products, row), load(builder, place, _FLOATS))
                store(builder, value, place)

            _for_tokens(builder, side, weight_type.kind_row if is_low else None, scale_token)

        _add_planes(builder, side, weight_type.kind_row, add_plane)
        return context.get_dummy_value()

    return _signature(6, kind), codegen


class _Adder32:
    """One plane of a block of 32: its products, and what turns them to floats."""

    def __init__(self, builder, emitter, is_low):
        self.builder, self.is_low = builder, is_low
        self.scales = emitter.scales(0)
        self.minimums = emitter.minimums(0) if emitter.type.has_minimum and not is_low else None

    def multiply(self, plane, scratch, products):
        """Write the whole-number sums of 16 tokens by 16 rows."""
        zero_tile(self.builder, SUMS[0])
        load_tile(self.builder, A32, plane, UNIT)
        load_tile(self.builder, B32, scratch)
        multiply_tiles(self.builder, SUMS[0], A32, B32)
        store_tile(self.builder, SUMS[0], products)

    def scaled(self, lane, products, value):
        """Add one token's sums, scaled."""
        builder = self.builder
        scale = lane.f32(builder, SCALE, 0, ROWS)
        if self.is_low:
            scale = builder.fmul(scale, constant(_FLOATS, LOW_PLANE_FACTOR))
        total = builder.sitofp(load(builder, products, _INTS), _FLOATS)
        value = fused_multiply_add(builder, total, builder.fmul(self.scales, scale), value)
        if self.minimums is None:
            return value
        return fused_multiply_add(builder, self.minimums, lane.f32(builder, SCALED_SUM, 0, ROWS), value)


class _Adder256:
    """One plane of a block of 256: its products, and what turns them to floats."""

    def __init__(self, builder, emitter, is_low):
        self.builder, self.planes = builder, planes_of(emitter.type)
        self.scale_row = LOW_SCALE if is_low else SCALE256
        self.d = emitter.load_f16(0, 0)
        self.minimums = _Minimums(builder, emitter, is_low) if emitter.type.has_minimum else None

    def multiply(self, plane, scratch, products):
        """Write the whole-number sums of 16 tokens by 16 rows."""
        _multiply_planes(self.builder, self.planes, plane, scratch, products)

    def scaled(self, lane, products, value):
        """Add one token's sums, scaled."""
        builder = self.builder
        scale = lane.f32(builder, self.scale_row, 0, ROWS)
        total = builder.sitofp(_joined(builder, self.planes, products), _FLOATS)
        value = fused_multiply_add(builder, total, builder.fmul(self.d, scale), value)
        return value if self.minimums is None else self.minimums.add(lane, scale, value)


class _Minimums:
    """The minimums of a block of 256, held in registers for all tokens."""

    def __init__(self, builder, emitter, is_low):
        self.builder, self.dot = builder, emitter.dot
        self.first_row = (SUMS16 if emitter.type.sub_values == 16 else SUMS32)[is_low]
        self.d = emitter.load_f16(2 * ROWS, 0)
        self.pairs = [emitter.minimum_pairs(I64(pair), 0) for pair in range(emitter.type.pairs)]

    def add(self, lane, scale, value):
        """Take the minimums off one token's values."""
        builder, total = self.builder, self.dot.zero()
        for index, pairs in enumerate(self.pairs):
            total = self.dot.add_pairs(total, pairs, lane.number(builder, self.first_row + index, 0))
        factor = builder.fneg(builder.fmul(self.d, scale))
        return fused_multiply_add(builder, builder.sitofp(total, _FLOATS), factor, value)


def _multiply_planes(builder, planes, activations, weights, products):
    """products[plane] = activations times the plane of unpacked weights, over 256 values."""
    for plane in range(planes):
        zero_tile(builder, SUMS[plane])
    for step in range(VALUES // 64):
        load_tile(builder, A64, builder.add(activations, I64(step * TILE_BYTES)))
        for plane in range(planes):
            load_tile(builder, B64, builder.add(weights, I64(plane * PLANE_BYTES + step * TILE_BYTES)))
            multiply_tiles(builder, SUMS[plane], A64, B64)
    for plane in range(planes):
        store_tile(builder, SUMS[plane], builder.add(products, I64(plane * TILE_BYTES)))


def _joined(builder, planes, place):
    """The whole-number sums of 16 rows for one token."""
    high = load(builder, place, _INTS)
    if planes == 1:
        return high
    low = load(builder, builder.add(place, I64(TILE_BYTES)), _INTS)
    return builder.add(builder.shl(high, constant(_INTS, 7)), low)


def _for_tokens(builder, side, kind_row, scale_token):
    """Emit scale_token(token, its lane) for all 16 tokens, or for those with a fine block."""
    with cgutils.for_range(builder, I64(TOKENS), intp=I64) as loop:
        lane = Lanes(None, builder.add(side, builder.mul(loop.index, I64(4))), 1, TOKENS)
        if kind_row is None:
            scale_token(loop.index, lane)
        else:
            kind = load(builder, lane.number(builder, kind_row, 0), I32)
            with builder.if_then(builder.icmp_signed("!=", kind, I32(0))):
                scale_token(loop.index, lane)


def _add_planes(builder, side, kind_row, add_plane):
    """Emit the first plane, and the second where any token has a fine block."""
    add_plane(False)
    kinds = load(builder, builder.add(side, I64(4 * kind_row * TOKENS)), _INTS)
    is_fine = builder.icmp_signed("!=", kinds, constant(_INTS, 0))
    mask = builder.bitcast(is_fine, ir.IntType(TOKENS))
    with builder.if_then(builder.icmp_unsigned("!=", mask, ir.IntType(TOKENS)(0)), likely=False):
        add_plane(True)
