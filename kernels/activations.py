"""The packed form of a matmul's input: rows in tiles of 8, 4, 2 and 1, quantized to int8 and, where asked, as float32.

Rows are cut into as many tiles of 8 as there are, and the rest into tiles of 4, 2 and 1. Within a tile of width w that
starts at row s, the values of its rows stand side by side, so that a kernel finds all it needs at fixed distances:

    quads    int8  [columns / 4][w][4]          at s * columns
    side     f32 scale, f32 scale * sum(q), i32 sum(q): [columns / 32][3][w]     at s * columns / 32 * 12
    floats   f32   [columns][w]                 at s * columns * 4

Quantization is per row and per 32 values: scale = max|x| / 127, q = round(x / scale), ties to even.
"""

from dataclasses import dataclass

import numpy as np

from kernels.jit import njit_inline
from kernels.quant.block32 import SIDE_BYTES, VALUES
from kernels.simd import (
    absolute,
    add_i32x16,
    load_f32x16,
    maximum,
    reduce_add_i32,
    reduce_max,
    round_to_i32,
    splat_f32x16,
    store_f32,
    store_i32,
    store_quads_i8,
    store_strided_f32,
)

TILE_WIDTHS = (8, 4, 2, 1)


@dataclass(frozen=True)
class Activations:
    """Buffers for up to `max_rows` packed rows of up to `max_columns` values; one at a time holds a matmul's input."""

    quads: np.ndarray  # int8 [max_rows * max_columns]
    side: np.ndarray  # uint8 [max_rows * max_columns / 32 * 12]
    floats: np.ndarray  # float32 [max_rows * max_columns]

    @classmethod
    def allocate(cls, max_rows: int, max_columns: int) -> "Activations":
        """Make zeroed buffers; pages that no step touches cost no memory."""
        size = max_rows * max_columns
        return cls(
            np.zeros(size, np.int8), np.zeros(-(-size // VALUES) * SIDE_BYTES, np.uint8), np.zeros(size, np.float32)
        )

    def fields(self) -> dict[str, int]:
        """The three addresses, as the op records name them."""
        return {"quads": self.quads.ctypes.data, "side": self.side.ctypes.data, "floats": self.floats.ctypes.data}


@njit_inline
def tile_width(start, rows):
    """The width of the tile that starts at row `start`, where the step has `rows` rows."""
    rest = rows - start
    for width in (8, 4, 2):
        if rest >= width:
            return width
    return 1


@njit_inline
def tile_start(tile, rows):
    """The first row of tile number `tile`; `rows` where there are not as many tiles."""
    whole = rows // 8
    start = min(tile, whole) * 8
    for _ in range(tile - whole):
        if start < rows:
            start += tile_width(start, rows)
    return start


@njit_inline
def pack_lane(source, start, lane, rows, columns, first, last, quads, side, floats):
    """Pack columns first..last-1 (multiples of 32) of row start + lane, whose tile starts at row `start`.

    source: address of the row's float32 [columns]; quads or floats may be 0 where nobody reads them. One thread packs
    a tile's lanes: they share cache lines.
    """
    width = tile_width(start, rows)
    if quads != 0:
        tile_quads = quads + np.uintp(start * columns + lane * 4)
        tile_side = side + np.uintp(start * (columns // 32) * 12 + lane * 4)
        _quantize(source, first // 32, last // 32, tile_quads, tile_side, width)
    if floats != 0:
        tile_floats = floats + np.uintp((start * columns + lane) * 4)
        for column in range(first, last, 16):
            value = load_f32x16(source + np.uintp(column * 4))
            store_strided_f32(value, tile_floats + np.uintp(column * width * 4), np.uintp(width * 4))


@njit_inline
def _quantize(source, first_block, last_block, quads, side, width):
    stride = np.uintp(width * 4)
    for block in range(first_block, last_block):
        low = load_f32x16(source + np.uintp(block * 128))
        high = load_f32x16(source + np.uintp(block * 128 + 64))
        largest = reduce_max(maximum(absolute(low), absolute(high)))
        scale = largest / np.float32(127)
        inverse = np.float32(0)
        if scale > np.float32(0):
            inverse = np.float32(1) / scale
        # A scale in the subnormal range has no finite inverse; such a block counts as zero.
        if not inverse < np.float32(3e38):
            inverse = np.float32(0)
        low_q = round_to_i32(low * splat_f32x16(inverse))
        high_q = round_to_i32(high * splat_f32x16(inverse))
        target = quads + np.uintp(block * 8 * width * 4)
        store_quads_i8(low_q, target, stride)
        store_quads_i8(high_q, target + np.uintp(4 * width * 4), stride)
        total = reduce_add_i32(add_i32x16(low_q, high_q))
        block_side = side + np.uintp(block * 12 * width)
        store_f32(scale, block_side)
        store_f32(scale * np.float32(total), block_side + stride)
        store_i32(np.int32(total), block_side + stride + stride)
