"""The packed form of a matmul's input: rows in tiles, quantized to int8 and, where asked, as float32.

Rows that stand together (all rows of a step, or those of one expert) are cut into as many tiles of the widest width as
there are, and the rest into tiles of 8, 4, 2 and 1. The widest are of 8 rows; where the processor has int8 matrix tiles
and the rows are at least as many as the buffers' crossover says, of 16. Within a tile of width w that starts at row s,
the values of its rows stand side by side, so that a kernel finds all it needs at fixed distances:

    quads    int8  [columns / 4][w][4], in tiles of 16: [columns / 32][16][32]          at s * columns
    fine     int8, laid out as quads; written only for blocks of the fine kind
    side     [columns / 32][4][w]: f32 scale, f32 scale * sum(q), i32 sum(q), i32 kind  at s * columns / 32 * 16
    floats   f32   [columns][w]                                                         at s * columns * 4

for weights in blocks of 32; weights in blocks of 256 have quads256, fine256 (in tiles of 16: [columns / 64][16][64])
and side256 (its rows: block256.py). The forms that the next matmuls read are written, the others are not.

Quantization is per row and per block: q = round(x / scale), ties to even. A plain block has 8 bits: its scale is
max|x| / 127. Where a block's largest value would drown the others in 8 bits, the block is fine and has 15 bits: its
scale is max|x| / 16256, and q = 128 * high + low, high in quads (-127..127), low in fine (-64..63). `scale` in the side
data is that of `quads`. The kind follows from the row alone.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels.build.jit import address, kernel, njit_inline
from kernels.build.toolchain import intrinsic, ir, types
from kernels.quant.block32 import SIDE_BYTES, VALUES
from kernels.quant.block256 import KIND256, LOW_SCALE, SCALE, SIDE256_BYTES, SUMS16, SUMS32, Block256
from kernels.quant.block256 import VALUES as VALUES256
from kernels.quant.weight_types import FloatType, WeightType
from kernels.run.program import record_at
from kernels.simd.tiers import TIERS_BY_NUMBER
from kernels.simd.vectors import (
    I64,
    absolute,
    add_i32x16,
    fma,
    load_f32x16,
    lower_plane,
    maximum,
    pointer,
    reduce_add,
    reduce_add_i32,
    reduce_max,
    round_to_i32,
    splat_f32x16,
    store_f32,
    store_i16,
    store_i32,
    store_quads_i8,
    store_strided_f32,
    upper_plane,
    zero_for_nan,
)

TILE_WIDTHS = (8, 4, 2, 1)
MATRIX_TILE_WIDTH = 16
NEVER = 2**63 - 1  # the crossover where there are no tiles of 16
# The forms of a packed row, as bits.
BLOCK32, BLOCK256, FLOATS = 1, 2, 4


# A block is fine where max|x|**2 is above this share of its sum of squares: some blocks in a hundred of real models.
# On SmolLM2 the divergence from f32 is about a third of what it is without fine blocks, for both lengths.
FINE_SHARE = np.float32(0.6)
_SMALLEST_NORMAL = np.float32(1.1754944e-38)

# The addresses of one set of packed rows; every op that packs or reads them has the record's address.
PACKED = np.dtype(
    [
        ("quads", "u8"),
        ("fine", "u8"),
        ("side", "u8"),
        ("quads256", "u8"),
        ("fine256", "u8"),
        ("side256", "u8"),
        ("floats", "u8"),
        ("crossover", "i8"),  # rows from which the widest tiles are of 16, at least 16
        ("packer", "u8"),  # the address of lane_packer()
        ("itself", "u8"),  # the address of this record
    ]
)


def has_matrix_tiles(tier: int) -> bool:
    """Tell whether a tier has tiles of 16 rows."""
    return TIERS_BY_NUMBER[tier].has_tiles


def form_of(kind: WeightType) -> int:
    """Return the form that a weight type's tile functions read."""
    if isinstance(kind, FloatType):
        return FLOATS
    return BLOCK256 if isinstance(kind, Block256) else BLOCK32


@dataclass(frozen=True)
class Activations:
    """Buffers for up to `max_rows` packed rows of up to `max_columns` values; one at a time holds a matmul's input."""

    buffers: dict[str, np.ndarray]
    record: np.ndarray = field(default_factory=lambda: np.zeros(1, PACKED))

    @classmethod
    def allocate(cls, max_rows: int, max_columns: int, crossover: int = NEVER) -> "Activations":
        """Make zeroed buffers; pages that no step touches cost no memory."""
        size = max_rows * max_columns
        activations = cls(
            buffers={
                "quads": np.zeros(size, np.int8),
                "fine": np.zeros(size, np.int8),
                "side": np.zeros(-(-size // VALUES) * SIDE_BYTES, np.uint8),
                "quads256": np.zeros(size, np.int8),
                "fine256": np.zeros(size, np.int8),
                "side256": np.zeros(-(-size // VALUES256) * SIDE256_BYTES, np.uint8),
                "floats": np.zeros(size, np.float32),
            }
        )
        for name, buffer in activations.buffers.items():
            activations.record[name] = buffer.ctypes.data
        activations.record["crossover"] = crossover
        activations.record["packer"] = address(lane_packer())
        activations.record["itself"] = activations.address
        return activations

    @property
    def address(self) -> int:
        """The address of the record."""
        return int(self.record.ctypes.data)


@njit_inline
def widest_tile(rows, crossover):
    """How many rows the widest tiles take, where `rows` rows stand together."""
    return MATRIX_TILE_WIDTH if rows >= crossover else 8


@njit_inline
def tile_width(start, rows, widest):
    """The width of the tile that starts at row `start`, where there are `rows` rows."""
    rest = rows - start
    if rest >= widest:
        return widest
    for width in (8, 4, 2):
        if rest >= width:
            return width
    return 1


@njit_inline
def tile_start(tile, rows, widest):
    """The first row of tile number `tile`; `rows` where there are not as many tiles."""
    whole = rows // widest
    start = min(tile, whole) * widest
    for _ in range(tile - whole):
        if start < rows:
            start += tile_width(start, rows, widest)
    return start


_PACKER_SIGNATURE = "void(uintp, uintp, int64, int64, int64, int64, int64, int64, int64)"


@intrinsic
def _call_packer(typingctx, function, packed, source, start, lane, width, columns, first, last, forms):
    def codegen(context, builder, signature, arguments):
        function_type = ir.FunctionType(ir.VoidType(), [I64] * 9)
        builder.call(pointer(builder, arguments[0], function_type), arguments[1:])
        return context.get_dummy_value()

    return types.none(types.uintp, types.uintp, types.uintp, *[types.int64] * 7), codegen


@njit_inline
def pack_lane(source, start, lane, width, columns, first, last, packed, forms):
    """Pack columns first..last-1 of row start + lane, whose tile of `width` rows starts at row `start`.

    source: address of the row's float32 [columns]; first and last: multiples of 32, or of 256 for BLOCK256; packed:
    a PACKED record. One thread packs a tile's lanes: they share cache lines. The code is called, not
    inlined: many ops pack, and would each take seconds to compile.
    """
    packer, record = np.uintp(packed.packer), np.uintp(packed.itself)
    _call_packer(packer, record, source, start, lane, width, columns, first, last, forms)


@kernel(_PACKER_SIGNATURE)
def lane_packer() -> Any:
    """Compile what `pack_lane` calls."""

    def pack(packed_address, source, start, lane, width, columns, first, last, forms):
        packed = record_at(packed_address, PACKED)
        _pack(source, start, lane, width, columns, first, last, packed, forms)

    return pack


@njit_inline
def _pack(source, start, lane, width, columns, first, last, packed, forms):
    if forms & BLOCK32:
        side = np.uintp(packed.side) + np.uintp(start * (columns // 32) * SIDE_BYTES + lane * 4)
        quads = np.uintp(packed.quads) + np.uintp(start * columns)
        fine = np.uintp(packed.fine) + np.uintp(start * columns)
        for block in range(first // 32, last // 32):
            block_side = side + np.uintp(block * SIDE_BYTES * width)
            _quantize(source + np.uintp(block * 128), block * 32, lane, width, quads, fine, block_side)
    if forms & BLOCK256:
        side = np.uintp(packed.side256) + np.uintp(start * (columns // 256) * SIDE256_BYTES + lane * 4)
        quads = np.uintp(packed.quads256) + np.uintp(start * columns)
        fine = np.uintp(packed.fine256) + np.uintp(start * columns)
        for block in range(first // 256, last // 256):
            block_side = side + np.uintp(block * SIDE256_BYTES * width)
            _quantize256(source + np.uintp(block * 1024), block * 256, lane, width, quads, fine, block_side)
    if forms & FLOATS:
        floats = np.uintp(packed.floats) + np.uintp((start * columns + lane) * 4)
        for column in range(first, last, 16):
            value = load_f32x16(source + np.uintp(column * 4))
            store_strided_f32(value, floats + np.uintp(column * width * 4), np.uintp(width * 4))


@njit_inline
def _chunk_offset(column, lane, width, run):
    """Where 16 values from `column` (a multiple of 16) on begin in a lane of a tile's quads.

    run: in a tile of 16, how many values of a lane stand together.
    """
    if width == MATRIX_TILE_WIDTH:
        return np.uintp(column // run * run * MATRIX_TILE_WIDTH + lane * run + column % run)
    return np.uintp(column * width + lane * 4)


@njit_inline
def _store_chunk(q, is_fine, column, lane, width, run, quads, fine):
    """Store 16 whole numbers in the planes."""
    offset = _chunk_offset(column, lane, width, run)
    stride = np.uintp(4) if width == MATRIX_TILE_WIDTH else np.uintp(width * 4)
    if is_fine:
        store_quads_i8(lower_plane(q), fine + offset, stride)
        store_quads_i8(upper_plane(q), quads + offset, stride)
    else:
        store_quads_i8(q, quads + offset, stride)


@njit_inline
def _scale_and_inverse(largest, energy, is_fine):
    """The step between whole numbers, and its inverse."""
    levels = np.float32(16256) if is_fine else np.float32(127)
    scale = largest / levels
    if energy != energy:
        scale = np.float32(np.nan)  # `largest` has passed over it; logits that are not numbers must show
    # A scale in the subnormal range has no finite inverse; such a block counts as zero.
    inverse = np.float32(1) / scale if scale > _SMALLEST_NORMAL else np.float32(0)
    return scale, inverse


@njit_inline
def _whole_numbers(address, inverse):
    """round(x * inverse) of 16 values; 0 for what is no number."""
    return round_to_i32(zero_for_nan(load_f32x16(address) * splat_f32x16(inverse)))


@njit_inline
def _quantize(source, column, lane, width, quads, fine, side):
    """Quantize 32 values; `side` is the lane's place in the block's side data."""
    a, b = load_f32x16(source), load_f32x16(source + np.uintp(64))
    largest = reduce_max(maximum(absolute(a), absolute(b)))
    energy = reduce_add(fma(a, a, b * b))
    is_fine = largest * largest > FINE_SHARE * energy
    scale, inverse = _scale_and_inverse(largest, energy, is_fine)
    a_q, b_q = _whole_numbers(source, inverse), _whole_numbers(source + np.uintp(64), inverse)
    _store_chunk(a_q, is_fine, column, lane, width, 32, quads, fine)
    _store_chunk(b_q, is_fine, column + 16, lane, width, 32, quads, fine)
    q = add_i32x16(a_q, b_q)
    total = np.int32(reduce_add_i32(q))
    stride = np.uintp(width * 4)
    store_f32(scale * np.float32(128) if is_fine else scale, side)
    store_f32(scale * np.float32(total), side + stride)
    if is_fine:
        low = np.int32(reduce_add_i32(add_i32x16(lower_plane(a_q), lower_plane(b_q))))
        store_i32(np.int32((total - low) >> 7), side + np.uintp(2) * stride)
        store_i32(np.int32(2 * low + 1), side + np.uintp(3) * stride)
    else:
        store_i32(total, side + np.uintp(2) * stride)
        store_i32(np.int32(0), side + np.uintp(3) * stride)


@njit_inline
def _store_sums(side, stride, rows, first, second, pair):
    """Store the sums of chunks 2 * pair and 2 * pair + 1 of a plane, and their sum as half of a pair of sums of 32."""
    first_row, first_row32 = rows
    store_i32(_pair(first, second), side + np.uintp(first_row + pair) * stride)
    store_i16(np.int16(first + second), side + np.uintp(first_row32 + pair // 2) * stride + np.uintp(pair % 2 * 2))


@njit_inline
def _pair(first, second):
    """Two int16 numbers in one int32, the first in the lower half."""
    return np.int32((second << 16) | (first & 0xFFFF))


_HIGH_ROWS, _LOW_ROWS = (SUMS16[0], SUMS32[0]), (SUMS16[1], SUMS32[1])


@njit_inline
def _quantize256(source, column, lane, width, quads, fine, side):
    """Quantize 256 values; `side` is the lane's place in the block's side data."""
    zero = splat_f32x16(np.float32(0))
    largest_of_lane, squares = zero, zero
    for chunk in range(16):
        x = load_f32x16(source + np.uintp(chunk * 64))
        largest_of_lane = maximum(largest_of_lane, absolute(x))
        squares = fma(x, x, squares)
    largest, energy = reduce_max(largest_of_lane), reduce_add(squares)
    is_fine = largest * largest > FINE_SHARE * energy
    scale, inverse = _scale_and_inverse(largest, energy, is_fine)
    stride = np.uintp(width * 4)
    plane_scale = scale * np.float32(128) if is_fine else scale
    store_f32(plane_scale, side + np.uintp(SCALE) * stride)
    store_f32(plane_scale * np.float32(1 / 128), side + np.uintp(LOW_SCALE) * stride)
    store_i32(np.int32(1) if is_fine else np.int32(0), side + np.uintp(KIND256) * stride)
    for pair in range(8):
        place = source + np.uintp(pair * 128)
        a, b = _whole_numbers(place, inverse), _whole_numbers(place + np.uintp(64), inverse)
        _store_chunk(a, is_fine, column + pair * 32, lane, width, 64, quads, fine)
        _store_chunk(b, is_fine, column + pair * 32 + 16, lane, width, 64, quads, fine)
        if is_fine:
            low_a, low_b = reduce_add_i32(lower_plane(a)), reduce_add_i32(lower_plane(b))
            _store_sums(side, stride, _LOW_ROWS, low_a, low_b, pair)
            a, b = upper_plane(a), upper_plane(b)
        _store_sums(side, stride, _HIGH_ROWS, reduce_add_i32(a), reduce_add_i32(b), pair)
