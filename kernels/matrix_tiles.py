"""Tile functions on int8 matrix tiles: some groups of 16 outputs for all whole tiles of 16 rows of activations.

A block of weights is unpacked once and then serves up to 16 tiles. Their sums stand in scratch on the stack, float32
[256][16]: small enough, with the unpacked block, for a core's first cache.
"""

import functools
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.extending import intrinsic

from kernels.activations import PACKED
from kernels.amx import configure_tiles, release_tiles
from kernels.jit import kernel, njit_inline
from kernels.program import TILE_SIGNATURE, record_at
from kernels.quant.block32 import SIDE_BYTES
from kernels.quant.block256 import SIDE256_BYTES
from kernels.quant.matrix_blocks import SCRATCH_BYTES, add_block32, add_block256, unpack_block32, unpack_block256
from kernels.simd import I8, I64, load_f32x16, load_i64, splat_f32x16, stack_array, store_vector
from kernels.tiles import MATMUL

_ROWS_AT_ONCE = 256
_SUMS_BYTES = _ROWS_AT_ONCE * 64
_ALIGNMENT = 64


@intrinsic(prefer_literal=True)
def _stack(typingctx, size):
    """The address of `size` bytes on the stack, aligned to a cache line."""
    count = size.literal_value + _ALIGNMENT

    def codegen(context, builder, signature, arguments):
        place = stack_array(builder, ir.ArrayType(I8, count))
        address = builder.add(builder.ptrtoint(place, I64), I64(_ALIGNMENT - 1))
        return builder.and_(address, I64(-_ALIGNMENT))

    return types.uintp(size), codegen


@njit_inline
def _clear(sums, rows):
    zero = splat_f32x16(np.float32(0))
    for row in range(rows):
        store_vector(zero, sums + np.uintp(row * 64))


@njit_inline
def _store(sums, rows, output, stride, add):
    """Store (or add) the sums of `rows` rows; stride: bytes between rows of the output."""
    for row in range(rows):
        value = load_f32x16(sums + np.uintp(row * 64))
        place = output + np.uintp(row * stride)
        store_vector(load_f32x16(place) + value if add != 0 else value, place)


@functools.cache
def matrix_tile32(kind: int, packed_bytes: int) -> Any:
    """Compile the tile function of a 32-value weight type: groups first..last-1, whole tiles from `row` on."""

    def tile(op, first, last, row):
        matmul = record_at(op, MATMUL)
        packed = record_at(np.uintp(matmul.packed), PACKED)
        blocks, columns, stride = matmul.blocks, matmul.columns, matmul.output_stride * 4
        end = row + (load_i64(np.uintp(matmul.rows)) - row) // 16 * 16
        scratch, sums = _stack(SCRATCH_BYTES), _stack(_SUMS_BYTES)
        configure_tiles()
        for start in range(row, end, _ROWS_AT_ONCE):
            rows = min(end - start, _ROWS_AT_ONCE)
            for group in range(first, last):
                weights = np.uintp(matmul.weights) + np.uintp(group * blocks * packed_bytes)
                _clear(sums, rows)
                for block in range(blocks):
                    here = weights + np.uintp(block * packed_bytes)
                    unpack_block32(here, scratch, kind)
                    for tile_row in range(0, rows, 16):
                        at = np.uintp((start + tile_row) * columns + block * 512)
                        side = np.uintp(packed.side) + np.uintp(((start + tile_row) * blocks + block * 16) * SIDE_BYTES)
                        add_block32(
                            sums + np.uintp(tile_row * 64),
                            here,
                            scratch,
                            np.uintp(packed.quads) + at,
                            np.uintp(packed.fine) + at,
                            side,
                            kind,
                        )
                output = np.uintp(matmul.output) + np.uintp(start * stride + group * 64)
                _store(sums, rows, output, stride, matmul.add)
        release_tiles()

    return kernel(tile, TILE_SIGNATURE)


@functools.cache
def matrix_tile256(kind: int, packed_bytes: int) -> Any:
    """Compile the tile function of a 256-value weight type: groups first..last-1, whole tiles from `row` on."""

    def tile(op, first, last, row):
        matmul = record_at(op, MATMUL)
        packed = record_at(np.uintp(matmul.packed), PACKED)
        blocks, columns, stride = matmul.blocks, matmul.columns, matmul.output_stride * 4
        end = row + (load_i64(np.uintp(matmul.rows)) - row) // 16 * 16
        scratch, sums = _stack(SCRATCH_BYTES), _stack(_SUMS_BYTES)
        configure_tiles()
        for start in range(row, end, _ROWS_AT_ONCE):
            rows = min(end - start, _ROWS_AT_ONCE)
            for group in range(first, last):
                weights = np.uintp(matmul.weights) + np.uintp(group * blocks * packed_bytes)
                _clear(sums, rows)
                for block in range(blocks):
                    here = weights + np.uintp(block * packed_bytes)
                    unpack_block256(here, scratch, kind)
                    for tile_row in range(0, rows, 16):
                        at = np.uintp((start + tile_row) * columns + block * 4096)
                        tile_side = ((start + tile_row) * blocks + block * 16) * SIDE256_BYTES
                        add_block256(
                            sums + np.uintp(tile_row * 64),
                            here,
                            scratch,
                            np.uintp(packed.quads256) + at,
                            np.uintp(packed.fine256) + at,
                            np.uintp(packed.side256) + np.uintp(tile_side),
                            kind,
                        )
                output = np.uintp(matmul.output) + np.uintp(start * stride + group * 64)
                _store(sums, rows, output, stride, matmul.add)
        release_tiles()

    return kernel(tile, TILE_SIGNATURE)
