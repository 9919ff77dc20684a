"""The packed form of a matmul's input: rows in tiles of 8, 4, 2 and 1, quantized to int8 and, where asked, as float32.

Rows are cut into as many tiles of 8 as there are, and the rest into tiles of 4, 2 and 1. Within a tile of width w that
starts at row s, the values of its rows stand side by side, so that a kernel finds all it needs at fixed distances:

    quads    int8  [columns / 4][w][4]          at s * columns
    fine     int8, laid out as quads; written only for blocks of the fine kind
    side     [columns / 32][4][w]: f32 scale, f32 scale * sum(q), i32 sum(q), i32 kind      at s * columns / 32 * 16
    floats   f32   [columns][w]                 at s * columns * 4

Quantization is per row and per 32 values: q = round(x / scale), ties to even. A plain block has 8 bits: its scale is
max|x| / 127. Where one value holds more than half of a block's energy, 8 bits would drown the other 31; such a block
is fine and has 15 bits: its scale is max|x| / 16256, and q = 128 * high + low, high in quads (-127..127), low in fine
(-64..63). The kind follows from the row alone, and integer sums join the two exactly.
"""

from dataclasses import dataclass

import numpy as np

from kernels.jit import njit_inline
from kernels.quant.block32 import SIDE_BYTES, VALUES
from kernels.simd import (
    absolute,
    add_i32x16,
    fma,
    load_f32x16,
    lower_plane,
    maximum,
    reduce_add,
    reduce_add_i32,
    reduce_max,
    round_to_i32,
    splat_f32x16,
    store_f32,
    store_i32,
    store_quads_i8,
    store_strided_f32,
    upper_plane,
    zero_for_nan,
)

TILE_WIDTHS = (8, 4, 2, 1)
_SMALLEST_NORMAL = np.float32(1.1754944e-38)


@dataclass(frozen=True)
class Activations:
    """Buffers for up to `max_rows` packed rows of up to `max_columns` values; one at a time holds a matmul's input."""

    quads: np.ndarray  # int8 [max_rows * max_columns]
    fine: np.ndarray  # int8 [max_rows * max_columns]
    side: np.ndarray  # uint8 [max_rows * max_columns / 32 * 16]
    floats: np.ndarray  # float32 [max_rows * max_columns]

    @classmethod
    def allocate(cls, max_rows: int, max_columns: int) -> "Activations":
        """Make zeroed buffers; pages that no step touches cost no memory."""
        size = max_rows * max_columns
        return cls(
            quads=np.zeros(size, np.int8),
            fine=np.zeros(size, np.int8),
            side=np.zeros(-(-size // VALUES) * SIDE_BYTES, np.uint8),
            floats=np.zeros(size, np.float32),
        )

    def fields(self) -> dict[str, int]:
        """The addresses, as the op records name them."""
        return {name: getattr(self, name).ctypes.data for name in ("quads", "fine", "side", "floats")}


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
def pack_lane(source, start, lane, rows, columns, first, last, quads, fine, side, floats):
    """Pack columns first..last-1 (multiples of 32) of row start + lane, whose tile starts at row `start`.

    source: address of the row's float32 [columns]; quads or floats may be 0 where nobody reads them. One thread packs
    a tile's lanes: they share cache lines.
    """
    width = tile_width(start, rows)
    if quads != 0:
        lane_offset = np.uintp(start * columns + lane * 4)
        tile_side = side + np.uintp(start * (columns // 32) * SIDE_BYTES + lane * 4)
        for block in range(first // 32, last // 32):
            offset = lane_offset + np.uintp(block * 32 * width)
            block_side = tile_side + np.uintp(block * SIDE_BYTES * width)
            _quantize(source + np.uintp(block * 128), quads + offset, fine + offset, block_side, width)
    if floats != 0:
        tile_floats = floats + np.uintp((start * columns + lane) * 4)
        for column in range(first, last, 16):
            value = load_f32x16(source + np.uintp(column * 4))
            store_strided_f32(value, tile_floats + np.uintp(column * width * 4), np.uintp(width * 4))


@njit_inline
def _quantize(source, quads, fine, side, width):
    """Quantize 32 values; the other addresses are the lane's places in the block."""
    a, b = load_f32x16(source), load_f32x16(source + np.uintp(64))
    largest = reduce_max(maximum(absolute(a), absolute(b)))
    energy = reduce_add(fma(a, a, b * b))
    is_fine = largest * largest > np.float32(0.5) * energy
    levels = np.float32(16256) if is_fine else np.float32(127)
    scale = largest / levels
    if energy != energy:
        scale = np.float32(np.nan)  # `largest` has passed over it; logits that are not numbers must show
    # A scale in the subnormal range has no finite inverse; such a block counts as zero.
    inverse = np.float32(1) / scale if scale > _SMALLEST_NORMAL else np.float32(0)
    a_q = round_to_i32(zero_for_nan(a * splat_f32x16(inverse)))
    b_q = round_to_i32(zero_for_nan(b * splat_f32x16(inverse)))
    stride = np.uintp(width * 4)
    half = np.uintp(4 * width * 4)
    if is_fine:
        store_quads_i8(lower_plane(a_q), fine, stride)
        store_quads_i8(lower_plane(b_q), fine + half, stride)
        store_quads_i8(upper_plane(a_q), quads, stride)
        store_quads_i8(upper_plane(b_q), quads + half, stride)
    else:
        store_quads_i8(a_q, quads, stride)
        store_quads_i8(b_q, quads + half, stride)
    total = np.int32(reduce_add_i32(add_i32x16(a_q, b_q)))
    store_f32(scale, side)
    store_f32(scale * np.float32(total), side + stride)
    store_i32(total, side + np.uintp(2) * stride)
    store_i32(np.int32(1) if is_fine else np.int32(0), side + np.uintp(3) * stride)
