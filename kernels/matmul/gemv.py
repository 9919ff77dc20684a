"""The matmul op: y[r, n] (+)= sum over k of W[n, k] * x[r, k], for any number of rows, in tiles of rows.

W stands packed in groups of 16 rows of W (see quant/), x packed in tiles (see activations.py). Bytes moved a step: the
packed weights once, plus the activations once for every task.

A thread that begins a task begins a new stream of memory, and waits for its first lines. So a task is as large as what
is left allows, a share of the thread's share, and tasks get smaller, for the threads to end at the same time. Where a
task's weights are read again for further rows, they also have to stay in a core's second-level cache.

Tile functions compute some groups of 16 outputs for a tile of rows. Those of vectors are in tiles.py. Those of int8
matrix tiles are here: a block of weights is unpacked once and then serves up to 16 tiles of 16 rows, whose sums stand
in scratch on the stack, float32 [256][16]: small enough, with the unpacked block, for a core's first cache.
"""

from typing import Any

import numpy as np

from kernels.build.jit import KERNEL_SIGNATURE, Kernel, address, kernel, njit_inline
from kernels.build.toolchain import intrinsic, ir, types
from kernels.matmul.activations import MATRIX_TILE_WIDTH, PACKED, TILE_WIDTHS, has_matrix_tiles, tile_width, widest_tile
from kernels.matmul.tiles import MATMUL, block_tile, float_tile, plane_offsets
from kernels.quant.matrix_blocks import SCRATCH_BYTES, add_block, unpack_block
from kernels.quant.weight_types import FloatType, QuantizedType, WeightType
from kernels.run.program import TILE_SIGNATURE, call_tile, claim_task, record_at
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


def matrix_tile(kind: QuantizedType) -> Kernel:
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


def compile_tile(kind: WeightType, lanes: int, tier: int) -> Kernel:
    """Compile the tile function of any weight type."""
    if isinstance(kind, FloatType):
        return float_tile(kind.number, kind.packed_bytes, lanes, tier)
    if lanes == MATRIX_TILE_WIDTH:
        return matrix_tile(kind)
    return block_tile(kind, lanes, tier)


def tile_widths(tier: int) -> tuple[int, ...]:
    """Return the widths of a tier's tiles, the widest first."""
    return (MATRIX_TILE_WIDTH, *TILE_WIDTHS) if has_matrix_tiles(tier) else TILE_WIDTHS


def tile_functions(kind: WeightType, tier: int) -> dict[str, int]:
    """Compile the tile functions of a weight type; returns the op record's `tile*` fields."""
    compiled = {f"tile{lanes}": address(compile_tile(kind, lanes, tier)) for lanes in tile_widths(tier)}
    return {"tile16": 0, **compiled}


# Packed weight bytes of a task. Large ones stay in a core's second-level cache over all rows.
SMALL_TASK_BYTES = 32 << 10
LARGE_TASK_BYTES = 256 << 10
_LARGE_TASKS_PER_THREAD = 4  # at least
# A task is one part in so many of its thread's share of what is left.
_TASKS_OF_SHARE = 2
# Up to so many rows (the widest tile of vectors), a task's weights are read once.
_ROWS_READ_ONCE = 8


def large_task_bytes(total_bytes: int, threads: int) -> int:
    """Return the bytes of a task of a thread's even share of `total_bytes`, within the bounds of a task."""
    share = total_bytes // (threads * _LARGE_TASKS_PER_THREAD)
    return min(max(share, SMALL_TASK_BYTES), LARGE_TASK_BYTES)


def task_bounds(group_bytes: int) -> dict[str, int]:
    """Return the op record's bounds of a task, in groups of a matrix of so many bytes a group."""
    return {
        "least_groups": max(1, SMALL_TASK_BYTES // group_bytes),
        "most_groups": max(1, LARGE_TASK_BYTES // group_bytes),
    }


@njit_inline
def groups_of(task, groups, threads, least, most):
    """The first group of a task and the one after its last; the first is `groups` or more where there is no such task.

    Tasks come in turns of one for each thread, all of a turn equally large.
    """
    first, size = np.int64(0), np.int64(0)
    for _ in range(task // threads + 1):
        first += size * threads
        if first >= groups:
            return first, first
        size = max(least, min(most, (groups - first) // (_TASKS_OF_SHARE * threads)))
    first += task % threads * size
    return first, min(first + size, groups)


@njit_inline
def run_tiles(op, matmul, first, last, row, rows, widest):
    """Compute groups first..last-1 for the rows row..rows-1, tile by tile; `widest` as they were packed."""
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


@kernel(KERNEL_SIGNATURE)
def matmul_kernel() -> Any:
    """Compile the op that deals groups of outputs to the threads and runs every tile of rows over them."""

    def matmul_op(op, thread, threads):
        matmul = record_at(op, MATMUL)
        rows = load_i64(np.uintp(matmul.rows))
        widest = widest_tile(rows, record_at(np.uintp(matmul.packed), PACKED).crossover)
        most = matmul.groups if rows <= _ROWS_READ_ONCE else matmul.most_groups
        while True:
            first, end = groups_of(claim_task(op), matmul.groups, threads, matmul.least_groups, most)
            if first >= matmul.groups:
                return
            run_tiles(op, matmul, first, end, np.int64(0), rows, widest)

    return matmul_op
