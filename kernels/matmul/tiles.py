"""Tile functions in vector registers: some groups of 16 outputs for one tile of 8, 4, 2 or 1 rows of activations.

Each output is one f32 accumulator over ascending blocks, whatever the tile's width (law 2).
"""

from typing import Any

import numpy as np

from kernels.build.jit import Kernel, kernel
from kernels.build.toolchain import cgutils, intrinsic, ir, types
from kernels.matmul.activations import MATRIX_TILE_WIDTH, PACKED
from kernels.quant.block_functions import accumulator_type, block_emitter, emit_planes
from kernels.quant.quads import ROWS
from kernels.quant.weight_types import TYPES_BY_NUMBER, QuantizedType
from kernels.run.program import TILE_SIGNATURE, op_record, record_at
from kernels.simd.tiers import TIERS_BY_NUMBER
from kernels.simd.vectors import F32, I64, fused_multiply_add, load, load_i64, splat, store

MATMUL = op_record(
    weights="u8",  # packed, [groups][blocks][packed bytes]
    groups="i8",  # of 16 outputs
    least_groups="i8",  # of a task
    most_groups="i8",  # of a task whose weights are read more than once
    blocks="i8",  # along k
    columns="i8",  # k
    rows="u8",  # address of the step's row count, int64
    packed="u8",  # address of the PACKED record of the activations
    output="u8",  # float32 [rows, output_stride]
    output_stride="i8",
    add="i8",  # 1: add to what the output holds (the residual)
    tile16="u8",  # does all whole tiles of 16 from a row on
    tile8="u8",
    tile4="u8",
    tile2="u8",
    tile1="u8",  # addresses of the tile functions
)


@intrinsic(prefer_literal=True)
def zero_accumulators(typingctx, lanes, tier):
    tuple_type = accumulator_type(lanes.literal_value, tier.literal_value)

    def codegen(context, builder, signature, arguments):
        zero = ir.Constant(tuple_type.dtype.llvm, None)
        return cgutils.pack_array(builder, [zero] * tuple_type.count)

    return tuple_type(lanes, tier), codegen


@intrinsic(prefer_literal=True)
def store_accumulators(typingctx, accumulators, output, stride, add, lanes, tier):
    """Store (or add) the sums of 16 outputs for each lane; stride in bytes between the lanes' rows."""
    width, rows = lanes.literal_value, TIERS_BY_NUMBER[tier.literal_value].dot.rows

    def codegen(context, builder, signature, arguments):
        values, output, stride, add = arguments[:4]
        adding = builder.icmp_signed("!=", add, I64(0))
        for index, value in enumerate(cgutils.unpack_tuple(builder, values, accumulators.count)):
            part, lane = divmod(index, width)
            target = builder.add(output, builder.add(builder.mul(stride, I64(lane)), I64(part * rows * 4)))
            with builder.if_else(adding) as (then, otherwise):
                with then:
                    store(builder, builder.fadd(load(builder, target, value.type), value), target)
                with otherwise:
                    store(builder, value, target)
        return context.get_dummy_value()

    return types.none(accumulators, types.uintp, types.int64, types.int64, lanes, tier), codegen


@intrinsic(prefer_literal=True)
def accumulate_block(typingctx, accumulators, block, quads, fine, side, kind, lanes, tier):
    """Add one block to the accumulators of `lanes` rows of activations.

    accumulators: tuple of lanes * parts float vectors, [part][lane]; block: address of a packed block;
    quads, fine: addresses of int8 [values / 4][lanes][4]; side: address of the side data [side_rows][lanes].
    """
    weight_type, width = TYPES_BY_NUMBER[kind.literal_value], lanes.literal_value
    make_dot = TIERS_BY_NUMBER[tier.literal_value].dot

    def codegen(context, builder, signature, arguments):
        values, block, quads, fine, side = arguments[:5]
        emitter = block_emitter(builder, weight_type, make_dot, block)
        values = cgutils.unpack_tuple(builder, values, accumulators.count)
        sums = emit_planes(builder, values, quads, fine, side, weight_type.kind_row, width, emitter.add_plane)
        return cgutils.pack_array(builder, sums)

    return accumulators(accumulators, types.uintp, types.uintp, types.uintp, types.uintp, kind, lanes, tier), codegen


@intrinsic(prefer_literal=True)
def accumulate_value(typingctx, accumulators, weights, activations, kind, lanes, tier):
    """Add one k to the accumulators: 16 weights at `weights`, `lanes` float32 activations side by side."""
    weight_type, width = TYPES_BY_NUMBER[kind.literal_value], lanes.literal_value
    rows = TIERS_BY_NUMBER[tier.literal_value].dot.rows

    def codegen(context, builder, signature, arguments):
        values, weights, activations = arguments[:3]
        values = cgutils.unpack_tuple(builder, values, accumulators.count)
        for part in range(ROWS // rows):
            address = builder.add(weights, I64(part * rows * weight_type.file_bytes))
            row_weights = weight_type.emit_values(builder, address, rows)
            for lane in range(width):
                activation = load(builder, builder.add(activations, I64(4 * lane)), F32)
                index = part * width + lane
                values[index] = fused_multiply_add(
                    builder, row_weights, splat(builder, activation, rows), values[index]
                )
        return cgutils.pack_array(builder, values)

    return accumulators(accumulators, types.uintp, types.uintp, kind, lanes, tier), codegen


def plane_offsets(kind: QuantizedType) -> tuple[int, ...]:
    """Return where the addresses of the activations that a type reads stand in a PACKED record: quads, fine, side."""
    fields = PACKED.fields
    assert fields is not None
    return tuple(fields[name][1] for name in kind.planes)


def block_tile(kind: QuantizedType, lanes: int, tier: int) -> Kernel:
    """Compile the tile function of a quantized type for tiles of `lanes` rows: groups first..last-1."""
    quads, fine, side = plane_offsets(kind)
    return _block_tile(kind.number, kind.values, kind.packed_bytes, kind.side_bytes, quads, fine, side, lanes, tier)


@kernel(TILE_SIGNATURE)
def _block_tile(
    kind: int,
    values: int,
    packed_bytes: int,
    side_bytes: int,
    quads_at: int,
    fine_at: int,
    side_at: int,
    lanes: int,
    tier: int,
) -> Any:
    def tile(op, first, last, row):
        matmul = record_at(op, MATMUL)
        packed = np.uintp(matmul.packed)
        blocks = matmul.blocks
        quads = np.uintp(load_i64(packed + np.uintp(quads_at))) + np.uintp(row * matmul.columns)
        fine = np.uintp(load_i64(packed + np.uintp(fine_at))) + np.uintp(row * matmul.columns)
        side = np.uintp(load_i64(packed + np.uintp(side_at))) + np.uintp(row * blocks * side_bytes)
        output = np.uintp(matmul.output) + np.uintp(row * matmul.output_stride * 4)
        for group in range(first, last):
            weights = np.uintp(matmul.weights) + np.uintp(group * blocks * packed_bytes)
            sums = zero_accumulators(lanes, tier)
            for block in range(blocks):
                sums = accumulate_block(
                    sums,
                    weights + np.uintp(block * packed_bytes),
                    quads + np.uintp(block * values * lanes),
                    fine + np.uintp(block * values * lanes),
                    side + np.uintp(block * side_bytes * lanes),
                    kind,
                    lanes,
                    tier,
                )
            store_accumulators(sums, output + np.uintp(group * 64), matmul.output_stride * 4, matmul.add, lanes, tier)

    return tile


@kernel(TILE_SIGNATURE)
def float_tile(kind: int, packed_bytes: int, lanes: int, tier: int) -> Any:
    """Compile the tile function of an unquantized weight type for tiles of `lanes` rows: groups first..last-1."""

    def tile(op, first, last, row):
        matmul = record_at(op, MATMUL)
        packed = record_at(np.uintp(matmul.packed), PACKED)
        columns = matmul.columns
        end = load_i64(np.uintp(matmul.rows)) if lanes == MATRIX_TILE_WIDTH else row + lanes
        for start in range(row, end - lanes + 1, lanes):
            floats = np.uintp(packed.floats) + np.uintp(start * columns * 4)
            output = np.uintp(matmul.output) + np.uintp(start * matmul.output_stride * 4)
            for group in range(first, last):
                weights = np.uintp(matmul.weights) + np.uintp(group * columns * packed_bytes)
                sums = zero_accumulators(lanes, tier)
                for k in range(columns):
                    sums = accumulate_value(
                        sums,
                        weights + np.uintp(k * packed_bytes),
                        floats + np.uintp(k * 4 * lanes),
                        kind,
                        lanes,
                        tier,
                    )
                place = output + np.uintp(group * 64)
                store_accumulators(sums, place, matmul.output_stride * 4, matmul.add, lanes, tier)

    return tile
