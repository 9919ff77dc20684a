"""Tile functions on int8 matrix tiles: some groups of 16 outputs for all whole tiles of 16 rows of activations.

A block of weights is unpacked once and then serves up to 16 tiles. Their sums stand in scratch on the stack, float32
[256][16]: small enough, with the unpacked block, for a core's first cache.
"""

from typing import Any

import numpy as np

from kernels.build.jit import Kernel, kernel, njit_inline
from kernels.build.toolchain import intrinsic, ir, types
from kernels.matmul.tiles import MATMUL, plane_offsets
from kernels.quant.matrix_blocks import SCRATCH_BYTES, add_block, unpack_block
from kernels.quant.types.weight_types import BlockType
from kernels.run.program import TILE_SIGNATURE, record_at
from kernels.simd.amx import configure_tiles, release_tiles
from kernels.simd.vectors import I8, I64, load_f32x16, load_i64, splat_f32x16, stack_array, store_vector

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


def matrix_tile(kind: BlockType) -> Kernel:
    """Compile the tile function of a quantized type: groups first..last-1, whole tiles from `row` on."""
    return _matrix_tile(kind.number, kind.values, kind.packed_bytes, kind.side_bytes, *plane_offsets(kind))


@kernel(TILE_SIGNATURE)
def _matrix_tile(
    kind: int, values: int, packed_bytes: int, side_bytes: int, quads_at: int, fine_at: int, side_at: int
) -> Any:
    def tile(op, first, last, row):
        matmul = record_at(op, MATMUL)
        packed = np.uintp(matmul.packed)
        quads, fine = load_i64(packed + np.uintp(quads_at)), load_i64(packed + np.uintp(fine_at))
        side = load_i64(packed + np.uintp(side_at))
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
                    unpack_block(here, scratch, kind)
                    for tile_row in range(0, rows, 16):
                        at = (start + tile_row) * columns + block * 16 * values
                        add_block(
                            sums + np.uintp(tile_row * 64),
                            here,
                            scratch,
                            np.uintp(quads + at),
                            np.uintp(fine + at),
                            np.uintp(side + ((start + tile_row) * blocks + block * 16) * side_bytes),
                            kind,
                        )
                output = np.uintp(matmul.output) + np.uintp(start * stride + group * 64)
                _store(sums, rows, output, stride, matmul.add)
        release_tiles()

    return tile
