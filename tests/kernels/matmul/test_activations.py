"""The packed form of activations: each value in its place, and quantized to the bits of the slow twin."""

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.matmul.activations import (
    BLOCK32,
    BLOCK256,
    FLOATS,
    NEVER,
    Activations,
    tile_start,
    tile_width,
    widest_tile,
)
from kernels.quant.block256 import KIND256, LOW_SCALE, SCALE, SIDE256_ROWS, SUMS16, SUMS32
from tests.kernels import reference
from tests.kernels.ops import hard_rows, packed, same_bits, tiles, unpacked_floats

ROW_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 23, 24, 31, 32, 64)
CROSSOVERS = (16, 24, 32, NEVER)
EVERY_FORM = BLOCK32 | BLOCK256 | FLOATS
SIDE32_ROWS = 4


@pytest.mark.parametrize("crossover", CROSSOVERS)
@pytest.mark.parametrize("rows", ROW_COUNTS)
def test_rows_are_cut_into_the_widest_tiles_and_one_each_of_the_rest(rows: int, crossover: int) -> None:
    widest = widest_tile(rows, crossover)
    for tile, (start, width) in enumerate(tiles(rows, crossover)):
        assert tile_start(tile, rows, widest) == start and tile_width(start, rows, widest) == width
    for beyond in range(len(tiles(rows, crossover)), len(tiles(rows, crossover)) + 5):
        assert tile_start(beyond, rows, widest) >= rows


class Unpacked:
    """The whole numbers and the side data of one form, read back from their places."""

    def __init__(self, activations: Activations, rows: int, columns: int, block: int) -> None:
        suffix, side_rows = ("", SIDE32_ROWS) if block == 32 else ("256", SIDE256_ROWS)
        self.planes = np.zeros((2, rows, columns // block, block), np.int8)
        self.side = np.zeros((rows, columns // block, side_rows), np.uint32)
        buffers, side = activations.buffers, activations.buffers[f"side{suffix}"].view(np.uint32)
        for start, width in tiles(rows, int(activations.record["crossover"][0])):
            end = start + width
            for plane, name in enumerate(("quads", "fine")):
                quads = buffers[name + suffix][start * columns : end * columns]
                self.planes[plane, start:end] = in_order(quads, width, columns, 32 if block == 32 else 64).reshape(
                    width, -1, block
                )
            numbers = side[start * columns // block * side_rows : end * columns // block * side_rows]
            self.side[start:end] = numbers.reshape(columns // block, side_rows, width).transpose(2, 0, 1)

    def floats(self, row: int) -> NDArray[np.float32]:
        """One row of the side data, [rows, blocks]."""
        return self.side[..., row].view(np.float32)

    def integers(self, row: int) -> NDArray[np.int32]:
        """One row of the side data, [rows, blocks]."""
        return self.side[..., row].view(np.int32)

    def pairs(self, first: int, count: int) -> NDArray[np.int16]:
        """Some rows of the side data as int16, [rows, blocks, 2 * count]."""
        return np.ascontiguousarray(self.side[..., first : first + count]).view(np.int16)


def in_order(quads: NDArray[np.int8], width: int, columns: int, run: int) -> NDArray[np.int8]:
    """A tile's values by row, [width, columns]."""
    if width == 16:
        return quads.reshape(columns // run, 16, run).transpose(1, 0, 2).reshape(16, columns)
    return quads.reshape(columns // 4, width, 4).transpose(1, 0, 2).reshape(width, columns)


def check_planes(unpacked: Unpacked, expected: reference.Quantized) -> None:
    (high, _), (low, _) = expected.planes()
    assert np.array_equal(unpacked.planes[0], high)
    assert np.array_equal(unpacked.planes[1][expected.fine], low[expected.fine])
    # What vpmaddubsw can add in 16 bits without saturation.
    assert np.abs(unpacked.planes[0].astype(int)).max() <= 127 and np.abs(unpacked.planes[1].astype(int)).max() <= 64


def check_packed(x: NDArray[np.float32], crossover: int = NEVER) -> reference.Quantized:
    rows, columns = x.shape
    activations = packed(x, BLOCK32 | FLOATS, crossover)
    assert same_bits(unpacked_floats(activations, rows, columns), x)
    unpacked, expected = Unpacked(activations, rows, columns, 32), reference.quantize_activations(x)
    check_planes(unpacked, expected)
    (high, scales), (low, _) = expected.planes()
    assert same_bits(unpacked.floats(0), scales)
    totals = expected.values.sum(axis=2).astype(np.float32)
    assert same_bits(unpacked.floats(1), expected.scales * totals)
    assert np.array_equal(unpacked.integers(2), high.sum(axis=2))
    assert np.array_equal(unpacked.integers(3), np.where(expected.fine, 2 * low.sum(axis=2) + 1, 0))
    return expected


def check_packed256(x: NDArray[np.float32], crossover: int = NEVER) -> reference.Quantized:
    unpacked = Unpacked(packed(x, BLOCK256, crossover), x.shape[0], x.shape[1], 256)
    expected = reference.quantize_activations(x, 256)
    check_planes(unpacked, expected)
    planes = expected.planes()
    assert same_bits(unpacked.floats(SCALE), planes[0][1])
    assert same_bits(unpacked.floats(LOW_SCALE), planes[1][1])
    assert np.array_equal(unpacked.integers(KIND256), expected.fine)
    for plane, (values, _) in enumerate(planes):
        written = np.ones_like(expected.fine) if plane == 0 else expected.fine
        for first, count, length in ((SUMS16[plane], 8, 16), (SUMS32[plane], 4, 32)):
            sums = values.reshape(*values.shape[:2], -1, length).sum(axis=3)
            assert np.array_equal(unpacked.pairs(first, count)[written], sums[written])
    return expected


@pytest.mark.parametrize("crossover", CROSSOVERS)
@pytest.mark.parametrize("rows", ROW_COUNTS)
def test_packed_rows_hold_the_bits_of_the_slow_twin(rows: int, crossover: int) -> None:
    check_packed(np.random.default_rng(rows).standard_normal((rows, 192)).astype(np.float32), crossover)
    check_packed256(np.random.default_rng(rows).standard_normal((rows, 512)).astype(np.float32), crossover)


def test_rows_longer_than_a_task_are_packed_whole() -> None:
    check_packed(np.random.default_rng(8).standard_normal((11, 1120)).astype(np.float32))
    check_packed256(np.random.default_rng(8).standard_normal((11, 1280)).astype(np.float32))


def test_hard_rows_are_quantized_to_the_bits_of_the_slow_twin() -> None:
    check_packed(hard_rows())
    check_packed256(hard_rows(768))


@pytest.mark.parametrize("exponent", [-149, -140, -133, -128, -126, -120, -63, 63, 100, 120])
def test_values_of_any_size_are_quantized_to_the_bits_of_the_slow_twin(exponent: int) -> None:
    x = np.ldexp(np.random.default_rng(4).standard_normal((8, 64)), exponent).astype(np.float32)
    assert np.isfinite(check_packed(x).scales).all()
    assert np.isfinite(check_packed256(np.tile(x, (1, 4))).scales).all()


@pytest.mark.parametrize("factor", [1.0, 0.999, 1.001])
def test_a_block_is_fine_where_one_value_holds_more_than_three_fifths_of_its_energy(factor: float) -> None:
    x = np.zeros((1, 256), np.float32)
    x[0, :25] = 1
    x[0, 9] = np.float32(6 * factor)  # against 24 others of energy 1
    assert check_packed(x[:, :32]).fine[0, 0] == (factor > 1)
    assert check_packed256(x).fine[0, 0] == (factor > 1)


@pytest.mark.parametrize("place", [0, 15, 16, 31])
@pytest.mark.parametrize("outlier", [-1e30, -300.0, 20.0, 1e4])
def test_fine_blocks_keep_the_values_beside_an_outlier(outlier: float, place: int) -> None:
    x = np.random.default_rng(6).standard_normal((5, 512)).astype(np.float32)
    x[3, 256 + place] = outlier
    for expected, block in ((check_packed(x), 8), (check_packed256(x), 1)):
        if abs(outlier) > 1e18:  # its energy overflows
            continue
        assert expected.fine[3, block]
        step = expected.scales[3, block]
        length = expected.values.shape[2]
        error = expected.values[3, block] * step - x[3, 256 : 256 + length]
        assert np.abs(error).max() <= 0.501 * step


def test_a_value_too_small_for_a_scale_counts_as_zero() -> None:
    assert not check_packed(np.full((1, 32), 1e-38, np.float32)).values.any()


def test_what_nobody_reads_is_not_written() -> None:
    x = np.random.default_rng(7).standard_normal((9, 256)).astype(np.float32)
    names = {BLOCK32: {"quads", "side"}, BLOCK256: {"quads256", "side256"}, FLOATS: {"floats"}}
    for form, written in names.items():
        buffers = packed(x, form).buffers
        assert {name for name, buffer in buffers.items() if buffer.any()} == written
        assert all(np.array_equal(buffers[name], packed(x, EVERY_FORM).buffers[name]) for name in written)
