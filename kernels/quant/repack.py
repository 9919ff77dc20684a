"""Compiled packing of weights at the speed of memory: bytes as in the file to the x16 layout.

The bytes are those of the NumPy twin, the types' `pack`. One block of 16 rows at a time: each row's numbers are taken
apart into a scratch buffer, a byte a value, and the 16 rows of it are interleaved.
"""

import functools

import numpy as np

from kernels.build.jit import Kernel, kernel
from kernels.build.toolchain import intrinsic, ir, types
from kernels.quant.block256 import VALUES
from kernels.quant.file_layout import CHUNK
from kernels.quant.quads import PIECES_BY_BITS, QUADS, ROWS, UNIT, unit_bytes
from kernels.quant.weight_types import TYPES_BY_NUMBER, FloatType, WeightType
from kernels.run.program import array_at
from kernels.simd.vectors import I16, I32, I64, constant, load, store

# (source, bytes of a row, rows, blocks of a row, packed, scratch): addresses and counts.
PACK_SIGNATURE = "void(int64, int64, int64, int64, int64, int64)"
_SCRATCH_BYTES = ROWS * VALUES  # one block of 16 rows, a byte a value


def pack_into(kind: WeightType, raw: np.ndarray, packed: np.ndarray) -> None:
    """Pack whole groups of rows, uint8 [rows, row_bytes], into uint8 [groups, blocks, packed_bytes] that is zeroed.

    Only the last group may lack rows. Other threads run meanwhile.
    """
    scratch = np.zeros(_SCRATCH_BYTES, np.uint8)
    packer(kind).call(raw.ctypes.data, raw.shape[1], len(raw), packed.shape[1], packed.ctypes.data, scratch.ctypes.data)


@functools.cache
def packer(kind: WeightType) -> Kernel:
    """Return the compiled function of PACK_SIGNATURE for one weight type."""
    if isinstance(kind, FloatType):
        return _value_packer(kind.file_bytes)
    return _block_packer(kind.number, kind.file_bytes, kind.values, kind.packed_bytes, kind.values_at, kind.bits)


@kernel(PACK_SIGNATURE)
def _block_packer(number, file_bytes, values, packed_bytes, values_at, bits):
    rows_of_group, values_of_unit, bytes_of_unit = ROWS, UNIT, unit_bytes(bits)

    def pack_blocks(source, row_bytes, rows, blocks, packed, scratch):
        for first in range(0, rows, rows_of_group):
            present = min(rows_of_group, rows - first)
            if present < rows_of_group:
                array_at(np.uintp(scratch), rows_of_group * values, np.uint8)[:] = 0
            for block in range(blocks):
                for row in range(present):
                    here = source + (first + row) * row_bytes + block * file_bytes
                    _pack_header(here, packed, row, number)
                    _unpack_weights(here, scratch + row * values, number)
                for unit in range(values // values_of_unit):
                    to = packed + values_at + unit * bytes_of_unit
                    _interleave_unit(scratch + unit * values_of_unit, to, values, bits)
                packed += packed_bytes

    return pack_blocks


@kernel(PACK_SIGNATURE)
def _value_packer(value_bytes):
    rows_of_group = ROWS

    def pack_values(source, row_bytes, rows, columns, packed, scratch):
        for first in range(0, rows, rows_of_group):
            # A few neighbouring columns of each row: rows are often a power of two apart, and share few cache lines.
            for column in range(0, columns, rows_of_group):
                for row in range(min(rows_of_group, rows - first)):
                    here = source + (first + row) * row_bytes + column * value_bytes
                    _scatter(here, packed + row * value_bytes, value_bytes)
                packed += rows_of_group * rows_of_group * value_bytes

    return pack_values


@intrinsic(prefer_literal=True)
def _scatter(typingctx, source, target, size):
    """Store 16 neighbouring values of 2 or 4 bytes 16 values apart."""

    def codegen(context, builder, signature, arguments):
        values = load(builder, arguments[0], ir.VectorType(ir.IntType(8 * size.literal_value), ROWS))
        for index in range(ROWS):
            place = builder.add(arguments[1], I64(ROWS * size.literal_value * index))
            store(builder, builder.extract_element(values, I32(index)), place)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, size), codegen


@intrinsic(prefer_literal=True)
def _unpack_weights(typingctx, block, scratch, kind):
    """Write the stored numbers of one row's block, a byte each."""
    weight_type = TYPES_BY_NUMBER[kind.literal_value]

    def codegen(context, builder, signature, arguments):
        block, scratch = arguments[:2]
        for first in range(0, weight_type.values, CHUNK):
            store(builder, weight_type.layout.emit_weights(builder, block, first), builder.add(scratch, I64(first)))
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, kind), codegen


@intrinsic(prefer_literal=True)
def _pack_header(typingctx, block, packed, row, kind):
    """Copy the scales and minimums of one row's block to their places in the packed block."""
    weight_type = TYPES_BY_NUMBER[kind.literal_value]
    layout = weight_type.layout

    def codegen(context, builder, signature, arguments):
        block, packed, row = arguments[:3]

        def copy(source_at, target_at, size):
            number = load(builder, builder.add(block, I64(source_at)), ir.IntType(8 * size))
            place = builder.add(builder.mul(row, I64(size)), I64(target_at))
            store(builder, number, builder.add(packed, place))

        copy(layout.scale_at, 0, layout.scale_bytes)
        if weight_type.has_minimum:
            copy(layout.minimum_at, layout.scale_bytes * ROWS, 2)
        if layout.scales:
            _emit_sub_blocks(builder, block, packed, row, weight_type)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64, kind), codegen


def _emit_sub_blocks(builder, block, packed, row, weight_type):
    """Store the scales and minimums of one row's sub-blocks, by pairs (block256.py)."""

    def store_pairs(numbers, at):
        pairs = builder.bitcast(numbers, ir.VectorType(I16, weight_type.pairs))
        start = builder.add(packed, builder.mul(row, I64(2)))
        for pair in range(weight_type.pairs):
            place = builder.add(start, I64(at + 2 * ROWS * pair))
            store(builder, builder.extract_element(pairs, I32(pair)), place)

    scales = weight_type.layout.emit_scales(builder, block)
    if weight_type.has_minimum:
        minimums = weight_type.layout.emit_minimums(builder, block)
        if weight_type.shares_bytes:
            scales = builder.or_(scales, builder.shl(minimums, constant(minimums.type, 4)))
        else:
            store_pairs(minimums, weight_type.minimums_at)
    store_pairs(scales, weight_type.scales_at)


@intrinsic(prefer_literal=True)
def _interleave_unit(typingctx, scratch, unit, stride, bits):
    """Pack one unit (quads.py) of 16 rows: a byte a value at `scratch`, rows `stride` bytes apart."""

    def codegen(context, builder, signature, arguments):
        scratch, unit = arguments[:2]
        quads = [_gather_quad(builder, scratch, 4 * quad, stride.literal_value) for quad in range(QUADS)]
        for vector in range(bits.literal_value):
            moved = [
                _move(builder, quad, piece)
                for quad, pieces in zip(quads, PIECES_BY_BITS[bits.literal_value], strict=True)
                for piece in pieces
                if piece.vector == vector
            ]
            store(builder, functools.reduce(builder.or_, moved), builder.add(unit, I64(4 * ROWS * vector)))
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, stride, bits), codegen


def _gather_quad(builder, scratch, at, stride):
    """Four neighbouring bytes of each of 16 rows: 16 x i32."""
    value = ir.Constant(ir.VectorType(I32, ROWS), ir.Undefined)
    for row in range(ROWS):
        quad = load(builder, builder.add(scratch, I64(at + row * stride)), I32)
        value = builder.insert_element(value, quad, I32(row))
    return value


def _move(builder, quad, piece):
    """Move a piece's bits of four values to where a vector has them; masked, no bit leaves its byte."""
    bits = builder.and_(quad, constant(quad.type, piece.mask * 0x01010101))
    left = constant(quad.type, abs(piece.at - piece.shift))
    return builder.shl(bits, left) if piece.at >= piece.shift else builder.lshr(bits, left)
