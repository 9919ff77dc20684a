"""Matrix times rows: y[r, n] (+)= sum over k of W[n, k] * x[r, k], for any number of rows, in tiles of 8, 4, 2, 1.

W stands packed in groups of 16 rows of W (see quant/), x packed in tiles (see activations). Each output is one f32
accumulator over ascending blocks, whatever the tile's width (law 2). Bytes moved a step: the packed weights once, plus
the activations once for every task of `groups_per_task` groups.
"""

import functools
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.extending import intrinsic

from kernels.activations import PACKED, TILE_WIDTHS, tile_width
from kernels.dot import DOTS_BY_TIER
from kernels.jit import address, kernel, njit_inline
from kernels.program import TILE_SIGNATURE, call_tile, claim_task, op_record, record_at
from kernels.quant.block32 import SIDE_BYTES, accumulate_block32
from kernels.quant.block256 import SIDE256_BYTES, Block256, accumulate_block256
from kernels.quant.blocks import accumulator_type
from kernels.quant.floats import FloatType, accumulate_value
from kernels.quant.weight_types import WeightType
from kernels.simd import I64, load, load_i64, store

MATMUL = op_record(
    weights="u8",  # packed, [groups][blocks][packed bytes]
    groups="i8",  # of 16 outputs
    groups_per_task="i8",
    blocks="i8",  # along k
    columns="i8",  # k
    rows="u8",  # address of the step's row count, int64
    packed="u8",  # address of the PACKED record of the activations
    output="u8",  # float32 [rows, output_stride]
    output_stride="i8",
    add="i8",  # 1: add to what the output holds (the residual)
    tile16="u8",
    tile8="u8",
    tile4="u8",
    tile2="u8",
    tile1="u8",  # addresses of the tile functions
)


@intrinsic(prefer_literal=True)
def _zero_accumulators(typingctx, lanes, tier):
    tuple_type = accumulator_type(lanes.literal_value, tier.literal_value)

    def codegen(context, builder, signature, arguments):
        zero = ir.Constant(tuple_type.dtype.llvm, None)
        return cgutils.pack_array(builder, [zero] * tuple_type.count)

    return tuple_type(lanes, tier), codegen


@intrinsic(prefer_literal=True)
def _store_accumulators(typingctx, accumulators, output, stride, add, lanes, tier):
    """Store (or add) the sums of 16 outputs for each lane; stride in bytes between the lanes' rows."""
    width, rows = lanes.literal_value, DOTS_BY_TIER[tier.literal_value].rows

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


@functools.cache
def block32_tile(kind: int, packed_bytes: int, lanes: int, tier: int) -> Any:
    """Compile the tile function of a 32-value weight type for tiles of `lanes` rows: groups first..last-1."""

    def tile(op, first, last, row):
        matmul = record_at(op, MATMUL)
        packed = record_at(np.uintp(matmul.packed), PACKED)
        blocks = matmul.blocks
        quads = np.uintp(packed.quads) + np.uintp(row * matmul.columns)
        fine = np.uintp(packed.fine) + np.uintp(row * matmul.columns)
        side = np.uintp(packed.side) + np.uintp(row * blocks * SIDE_BYTES)
        output = np.uintp(matmul.output) + np.uintp(row * matmul.output_stride * 4)
        for group in range(first, last):
            weights = np.uintp(matmul.weights) + np.uintp(group * blocks * packed_bytes)
            sums = _zero_accumulators(lanes, tier)
            for block in range(blocks):
                sums = accumulate_block32(
                    sums,
                    weights + np.uintp(block * packed_bytes),
                    quads + np.uintp(block * 32 * lanes),
                    fine + np.uintp(block * 32 * lanes),
                    side + np.uintp(block * SIDE_BYTES * lanes),
                    kind,
                    lanes,
                    tier,
                )
            _store_accumulators(sums, output + np.uintp(group * 64), matmul.output_stride * 4, matmul.add, lanes, tier)

    return kernel(tile, TILE_SIGNATURE)


@functools.cache
def block256_tile(kind: int, packed_bytes: int, lanes: int, tier: int) -> Any:
    """Compile the tile function of a 256-value weight type for tiles of `lanes` rows: groups first..last-1."""

    def tile(op, first, last, row):
        matmul = record_at(op, MATMUL)
        packed = record_at(np.uintp(matmul.packed), PACKED)
        blocks = matmul.blocks
        quads = np.uintp(packed.quads256) + np.uintp(row * matmul.columns)
        fine = np.uintp(packed.fine256) + np.uintp(row * matmul.columns)
        side = np.uintp(packed.side256) + np.uintp(row * blocks * SIDE256_BYTES)
        output = np.uintp(matmul.output) + np.uintp(row * matmul.output_stride * 4)
        for group in range(first, last):
            weights = np.uintp(matmul.weights) + np.uintp(group * blocks * packed_bytes)
            sums = _zero_accumulators(lanes, tier)
            for block in range(blocks):
                sums = accumulate_block256(
                    sums,
                    weights + np.uintp(block * packed_bytes),
                    quads + np.uintp(block * 256 * lanes),
                    fine + np.uintp(block * 256 * lanes),
                    side + np.uintp(block * SIDE256_BYTES * lanes),
                    kind,
                    lanes,
                    tier,
                )
            _store_accumulators(sums, output + np.uintp(group * 64), matmul.output_stride * 4, matmul.add, lanes, tier)

    return kernel(tile, TILE_SIGNATURE)


@functools.cache
def float_tile(kind: int, packed_bytes: int, lanes: int, tier: int) -> Any:
    """Compile the tile function of an unquantized weight type for tiles of `lanes` rows: groups first..last-1."""

    def tile(op, first, last, row):
        matmul = record_at(op, MATMUL)
        packed = record_at(np.uintp(matmul.packed), PACKED)
        columns = matmul.columns
        floats = np.uintp(packed.floats) + np.uintp(row * columns * 4)
        output = np.uintp(matmul.output) + np.uintp(row * matmul.output_stride * 4)
        for group in range(first, last):
            weights = np.uintp(matmul.weights) + np.uintp(group * columns * packed_bytes)
            sums = _zero_accumulators(lanes, tier)
            for k in range(columns):
                sums = accumulate_value(
                    sums,
                    weights + np.uintp(k * packed_bytes),
                    floats + np.uintp(k * 4 * lanes),
                    kind,
                    lanes,
                    tier,
                )
            _store_accumulators(sums, output + np.uintp(group * 64), matmul.output_stride * 4, matmul.add, lanes, tier)

    return kernel(tile, TILE_SIGNATURE)


def compile_tile(kind: WeightType, lanes: int, tier: int) -> Any:
    """Compile the tile function of any weight type."""
    if isinstance(kind, FloatType):
        return float_tile(kind.number, kind.packed_bytes, lanes, tier)
    make_tile = block256_tile if isinstance(kind, Block256) else block32_tile
    return make_tile(kind.number, kind.packed_bytes, lanes, tier)


def tile_functions(kind: WeightType, tier: int) -> dict[str, int]:
    """Compile the tile functions of a weight type; returns the op record's `tile*` fields."""
    narrow = {f"tile{lanes}": address(compile_tile(kind, lanes, tier)) for lanes in TILE_WIDTHS}
    return {"tile16": 0, **narrow}


@njit_inline
def run_tiles(op, matmul, first, last, row, rows):
    """Compute groups first..last-1 for the rows row..rows-1, tile by tile."""
    widest = record_at(np.uintp(matmul.packed), PACKED).widest
    if widest == 16 and rows - row >= 16:
        call_tile(np.uintp(matmul.tile16), op, first, last, row)  # as many tiles as there are
        row += (rows - row) // 16 * 16
    while row < rows:
        width = tile_width(row, rows, np.int64(8))
        function = matmul.tile1
        if width == 8:
            function = matmul.tile8
        elif width == 4:
            function = matmul.tile4
        elif width == 2:
            function = matmul.tile2
        call_tile(np.uintp(function), op, first, last, row)
        row += width


@functools.cache
def matmul_kernel() -> Any:
    """Compile the op that deals groups of outputs to the threads and runs every tile of rows over them."""

    def matmul_op(op, thread, threads):
        matmul = record_at(op, MATMUL)
        rows = load_i64(np.uintp(matmul.rows))
        while True:
            first = claim_task(op) * matmul.groups_per_task
            if first >= matmul.groups:
                return
            run_tiles(op, matmul, first, min(first + matmul.groups_per_task, matmul.groups), np.int64(0), rows)

    return kernel(matmul_op)
