"""The block functions on int8 matrix tiles: 16 rows of weights times 16 rows of activations at a time.

They do the operations of accumulate_block32 and accumulate_block256 in the same order, so they give the same bits. A
block is unpacked once for all its tiles of activations, to signed bytes in the x16 layout, ready to be a B tile:

    blocks of 32    w - offset                    1024 / 2 bytes
    blocks of 256   s * (w - offset) = 128 * h + l, in two planes of 4096 bytes, h first; where that fits in a signed
                    byte, in one

Whole-number sums of the planes join exactly: 128 * sum(h * x) + sum(l * x).
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.extending import intrinsic

from kernels.amx import (
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
from kernels.dot import Avx512Dot
from kernels.quant.block32 import BLOCK32_BY_NUMBER, KIND, SCALE, SCALED_SUM, Block32Emitter
from kernels.quant.block256 import (
    BLOCK256_BY_NUMBER,
    KIND256,
    LOW_SCALE,
    SUMS16,
    SUMS32,
    VALUES,
    Block256Emitter,
)
from kernels.quant.block256 import SCALE as SCALE256
from kernels.quant.blocks import LOW_PLANE_FACTOR, Lanes, load_f16
from kernels.quant.quads import QUADS, ROWS, UNIT, unit_bytes
from kernels.simd import F32, I8, I16, I32, I64, constant, fused_multiply_add, load, store

PLANE_BYTES = ROWS * VALUES
# Scratch of a thread: two unpacked planes and two tiles of sums.
SCRATCH_BYTES = 2 * PLANE_BYTES + 2 * TILE_BYTES
_BYTES, _WORDS = ir.VectorType(I8, 64), ir.VectorType(I16, 64)
_INTS, _FLOATS = ir.VectorType(I32, ROWS), ir.VectorType(F32, ROWS)


def _signature(arguments, kind):
    return types.none(*[types.uintp] * arguments, kind)


@intrinsic(prefer_literal=True)
def unpack_block32(typingctx, block, scratch, kind):
    """Unpack one packed block to the scratch."""
    weight_type = BLOCK32_BY_NUMBER[kind.literal_value]

    def codegen(context, builder, signature, arguments):
        block, scratch = arguments[:2]
        emitter = Block32Emitter(builder, weight_type, Avx512Dot, block)
        for quad, weights in enumerate(emitter.weights(0)):
            signed = builder.sub(weights, constant(_BYTES, weight_type.offset))
            store(builder, signed, builder.add(scratch, I64(64 * quad)))
        return context.get_dummy_value()

    return _signature(2, kind), codegen


@intrinsic(prefer_literal=True)
def unpack_block256(typingctx, block, scratch, kind):
    """Unpack one packed block, times the scales of its sub-blocks, to the scratch."""
    weight_type = BLOCK256_BY_NUMBER[kind.literal_value]

    def codegen(context, builder, signature, arguments):
        block, scratch = arguments[:2]
        emitter = Block256Emitter(builder, weight_type, Avx512Dot, block)
        with cgutils.for_range(builder, I64(weight_type.pairs), intp=I64) as loop:
            _unpack_pair(builder, emitter, loop.index, scratch)
        return context.get_dummy_value()

    return _signature(2, kind), codegen


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
def add_block32(typingctx, accumulators, block, scratch, quads, fine, side, kind):
    """Add one unpacked block to float32 [16 tokens][16 rows].

    quads, fine: addresses of the tile's planes at the block, [16][32]; side: [4][16].
    """
    weight_type = BLOCK32_BY_NUMBER[kind.literal_value]

    def codegen(context, builder, signature, arguments):
        accumulators, block, scratch, quads, fine, side = arguments[:6]
        emitter = Block32Emitter(builder, weight_type, Avx512Dot, block)
        products = builder.add(scratch, I64(2 * PLANE_BYTES))

        def add_plane(plane, is_low):
            zero_tile(builder, SUMS[0])
            load_tile(builder, A32, plane, UNIT)
            load_tile(builder, B32, scratch)
            multiply_tiles(builder, SUMS[0], A32, B32)
            store_tile(builder, SUMS[0], products)
            scales = emitter.scales(0)
            minimums = emitter.minimums(0) if weight_type.has_minimum and not is_low else None

            def scale_token(token, lane):
                scale = lane.f32(builder, SCALE, 0, ROWS)
                if is_low:
                    scale = builder.fmul(scale, constant(_FLOATS, LOW_PLANE_FACTOR))
                total = load(builder, builder.add(products, builder.mul(token, I64(64))), _INTS)
                place = builder.add(accumulators, builder.mul(token, I64(64)))
                value = fused_multiply_add(
                    builder, builder.sitofp(total, _FLOATS), builder.fmul(scales, scale), load(builder, place, _FLOATS)
                )
                if minimums is not None:
                    value = fused_multiply_add(builder, minimums, lane.f32(builder, SCALED_SUM, 0, ROWS), value)
                store(builder, value, place)

            _for_tokens(builder, side, KIND if is_low else None, scale_token)

        _add_planes(builder, side, KIND, lambda is_low: add_plane(fine if is_low else quads, is_low))
        return context.get_dummy_value()

    return _signature(6, kind), codegen


@intrinsic(prefer_literal=True)
def add_block256(typingctx, accumulators, block, scratch, quads, fine, side, kind):
    """Add one unpacked block to float32 [16 tokens][16 rows].

    quads, fine: addresses of the tile's planes at the block, [4][16][64]; side: [28][16].
    """
    weight_type = BLOCK256_BY_NUMBER[kind.literal_value]

    def codegen(context, builder, signature, arguments):
        accumulators, block, scratch, quads, fine, side = arguments[:6]
        emitter = Block256Emitter(builder, weight_type, Avx512Dot, block)
        products = builder.add(scratch, I64(2 * PLANE_BYTES))

        def add_plane(plane, is_low):
            _multiply_planes(builder, planes_of(weight_type), plane, scratch, products)
            d = load_f16(builder, block, 0, ROWS)
            minimums = _Minimums(builder, emitter, is_low) if weight_type.has_minimum else None

            def scale_token(token, lane):
                scale = lane.f32(builder, LOW_SCALE if is_low else SCALE256, 0, ROWS)
                total = _joined(builder, planes_of(weight_type), builder.add(products, builder.mul(token, I64(64))))
                place = builder.add(accumulators, builder.mul(token, I64(64)))
                value = fused_multiply_add(
                    builder, builder.sitofp(total, _FLOATS), builder.fmul(d, scale), load(builder, place, _FLOATS)
                )
                if minimums is not None:
                    value = minimums.add(lane, scale, value)
                store(builder, value, place)

            _for_tokens(builder, side, KIND256 if is_low else None, scale_token)

        _add_planes(builder, side, KIND256, lambda is_low: add_plane(fine if is_low else quads, is_low))
        return context.get_dummy_value()

    return _signature(6, kind), codegen


class _Minimums:
    """The minimums of a block of 256, held in registers for all tokens."""

    def __init__(self, builder, emitter, is_low):
        self.builder, self.dot = builder, emitter.dot
        self.first_row = (SUMS16 if emitter.type.sub_values == 16 else SUMS32)[is_low]
        self.d = load_f16(builder, builder.add(emitter.block, I64(2 * ROWS)), 0, ROWS)
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
