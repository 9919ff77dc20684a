"""The packed form of activations: each value in its place, and quantized to the bits of the slow twin."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels import reference
from kernels.activations import TILE_WIDTHS, Activations, tile_start, tile_width
from tests.kernels.ops import hard_rows, packed, same_bits, tiles, unpacked_floats

ROW_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 23, 64)


@pytest.mark.parametrize("rows", ROW_COUNTS)
def test_rows_are_cut_into_tiles_of_8_and_one_each_of_the_rest(rows: int) -> None:
    assert all(width in TILE_WIDTHS for _, width in tiles(rows))
    for start, width in tiles(rows):
        assert tile_width(start, rows) == width
        assert {tile_start(row, rows) for row in range(start, start + width)} == {start}
    assert all(start + width == following for (start, width), (following, _) in pairwise(tiles(rows)))


def unpack(buffers: Activations, rows: int, columns: int) -> tuple[NDArray[np.int8], NDArray[np.uint32]]:
    """Read the quantized values back: int8 [rows, columns / 32, 32], and the side data's bits [rows, columns / 32, 3]."""
    blocks, side = columns // 32, buffers.side.view(np.uint32)
    values, sides = np.zeros((rows, blocks, 32), np.int8), np.zeros((rows, blocks, 3), np.uint32)
    for start, width in tiles(rows):
        end = start + width
        quads = buffers.quads[start * columns : end * columns].reshape(columns // 4, width, 4)
        values[start:end] = quads.transpose(1, 0, 2).reshape(width, blocks, 32)
        sides[start:end] = side[start * blocks * 3 : end * blocks * 3].reshape(blocks, 3, width).transpose(2, 0, 1)
    return values, sides


def check_packed(x: NDArray[np.float32]) -> None:
    rows, columns = x.shape
    buffers = packed(x)
    values, side = unpack(buffers, rows, columns)
    expected, scales = reference.quantize_activations(x)
    sums = expected.sum(axis=2, dtype=np.int32)
    assert np.array_equal(values, expected)
    assert same_bits(side[..., 0].view(np.float32), scales)
    assert same_bits(side[..., 1].view(np.float32), scales * sums.astype(np.float32))
    assert np.array_equal(side[..., 2].view(np.int32), sums)
    assert same_bits(unpacked_floats(buffers, rows, columns), x)


@pytest.mark.parametrize("rows", ROW_COUNTS)
def test_packed_rows_hold_the_bits_of_the_slow_twin(rows: int) -> None:
    check_packed(np.random.default_rng(rows).standard_normal((rows, 160)).astype(np.float32))


def test_hard_rows_are_quantized_to_the_bits_of_the_slow_twin() -> None:
    check_packed(hard_rows())


@pytest.mark.parametrize("exponent", [-149, -140, -133, -128, -126, -120, 100, 120])
def test_quantized_values_stay_within_127_at_any_size(exponent: int) -> None:
    x = np.ldexp(np.random.default_rng(4).standard_normal((8, 64)), exponent).astype(np.float32)
    check_packed(x)
    values, scales = reference.quantize_activations(x)
    assert np.abs(values.astype(int)).max() <= 127 and np.isfinite(scales).all()


def test_a_value_too_small_for_a_scale_counts_as_zero() -> None:
    x = np.full((1, 32), 1e-38, np.float32)
    values, side = unpack(packed(x), 1, 32)
    assert not values.any() and side[0, 0, 2] == 0
