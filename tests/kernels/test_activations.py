"""The packed form of activations: each value in its place, and quantized to the bits of the slow twin."""

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels import reference
from kernels.activations import TILE_WIDTHS, Activations, tile_start, tile_width
from tests.kernels.ops import hard_rows, packed, same_bits, tiles, unpacked_floats

ROW_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 23, 64)


@pytest.mark.parametrize("rows", ROW_COUNTS)
def test_rows_are_cut_into_tiles_of_8_and_one_each_of_the_rest(rows: int) -> None:
    for tile, (start, width) in enumerate(tiles(rows)):
        assert width in TILE_WIDTHS
        assert tile_start(tile, rows) == start and tile_width(start, rows) == width
    for beyond in range(len(tiles(rows)), len(tiles(rows)) + 5):
        assert tile_start(beyond, rows) >= rows


class Unpacked:
    """The quantized values read back from their places."""

    def __init__(self, buffers: Activations, rows: int, columns: int) -> None:
        self.quads, self.low = (np.zeros((rows, columns // 32, 32), np.int8) for _ in range(2))
        self.side = np.zeros((rows, columns // 32, 4), np.uint32)
        for start, width in tiles(rows):
            self._read(buffers, start, width, columns)
        self.scales, self.scaled_sums = (self.side[..., place].view(np.float32) for place in (0, 1))
        self.sums, self.kinds = (self.side[..., place].view(np.int32) for place in (2, 3))

    def _read(self, buffers: Activations, start: int, width: int, columns: int) -> None:
        end, blocks = start + width, columns // 32
        for target, plane in ((self.quads, buffers.quads), (self.low, buffers.fine)):
            quads = plane[start * columns : end * columns].reshape(columns // 4, width, 4)
            target[start:end] = quads.transpose(1, 0, 2).reshape(width, blocks, 32)
        side = buffers.side.view(np.uint32)[start * blocks * 4 : end * blocks * 4]
        self.side[start:end] = side.reshape(blocks, 4, width).transpose(2, 0, 1)

    @property
    def values(self) -> NDArray[np.int32]:
        """[rows, blocks, 32]: both planes joined where a block is fine."""
        high = self.quads.astype(np.int32)
        return np.where(self.kinds[..., None] == 1, 128 * high + self.low, high)


def check_packed(x: NDArray[np.float32]) -> Unpacked:
    rows, columns = x.shape
    buffers = packed(x)
    unpacked = Unpacked(buffers, rows, columns)
    values, scales, fine = reference.quantize_activations(x)
    sums = values.sum(axis=2, dtype=np.int32)
    assert np.array_equal(unpacked.kinds, fine)
    assert np.array_equal(unpacked.values, values)
    assert np.array_equal(unpacked.sums, sums)
    assert same_bits(unpacked.scales, scales)
    assert same_bits(unpacked.scaled_sums, scales * sums.astype(np.float32))
    assert same_bits(unpacked_floats(buffers, rows, columns), x)
    # What vpmaddubsw can add in 16 bits without saturation.
    assert np.abs(unpacked.quads.astype(int)).max() <= 127 and np.abs(unpacked.low.astype(int)).max() <= 64
    return unpacked


@pytest.mark.parametrize("rows", ROW_COUNTS)
def test_packed_rows_hold_the_bits_of_the_slow_twin(rows: int) -> None:
    check_packed(np.random.default_rng(rows).standard_normal((rows, 160)).astype(np.float32))


def test_rows_longer_than_a_task_are_packed_whole() -> None:
    check_packed(np.random.default_rng(8).standard_normal((11, 1120)).astype(np.float32))


def test_hard_rows_are_quantized_to_the_bits_of_the_slow_twin() -> None:
    check_packed(hard_rows())


@pytest.mark.parametrize("exponent", [-149, -140, -133, -128, -126, -120, -63, 63, 100, 120])
def test_values_of_any_size_are_quantized_to_the_bits_of_the_slow_twin(exponent: int) -> None:
    x = np.ldexp(np.random.default_rng(4).standard_normal((8, 64)), exponent).astype(np.float32)
    assert np.isfinite(check_packed(x).scales).all()


@pytest.mark.parametrize("factor", [1.0, 0.999, 1.001])
def test_a_block_is_fine_where_one_value_holds_more_than_half_of_its_energy(factor: float) -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, :17] = 1
    x[0, 9] = np.float32(4 * factor)  # against 16 others of energy 1
    assert check_packed(x).kinds[0, 0] == (factor > 1)


@pytest.mark.parametrize("place", [0, 15, 16, 31])
@pytest.mark.parametrize("outlier", [-1e30, -300.0, 20.0, 1e4])
def test_fine_blocks_keep_the_values_beside_an_outlier(outlier: float, place: int) -> None:
    x = np.random.default_rng(6).standard_normal((5, 64)).astype(np.float32)
    x[3, 32 + place] = outlier
    unpacked = check_packed(x)
    if abs(outlier) < 1e18:  # beyond, its energy overflows
        assert unpacked.kinds[3, 1] == 1
        step = abs(outlier) / 16256
        error = unpacked.values[3, 1] * unpacked.scales[3, 1] - x[3, 32:]
        assert np.abs(error).max() <= 0.501 * step


def test_a_value_too_small_for_a_scale_counts_as_zero() -> None:
    assert not check_packed(np.full((1, 32), 1e-38, np.float32)).values.any()


def test_what_nobody_reads_is_not_written() -> None:
    x = np.random.default_rng(7).standard_normal((9, 96)).astype(np.float32)
    floats_only, integers_only = packed(x, forms=("floats",)), packed(x, forms=("quads", "fine", "side"))
    assert not floats_only.quads.any() and not floats_only.side.any() and floats_only.floats.any()
    assert not integers_only.floats.any() and np.array_equal(integers_only.quads, packed(x).quads)
