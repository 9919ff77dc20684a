"""The compiled packer and the compiled dequantizer against their NumPy twins, for every type."""

import numpy as np
import pytest

from kernels.quant.repack import pack_into
from kernels.quant.rows import dequantize_rows
from kernels.quant.weight_types import WEIGHT_TYPES
from tests.kernels.ops import hard_matrix, random_matrix, same_bits, wide


@pytest.mark.parametrize("outputs", [1, 15, 16, 48, 53])
@pytest.mark.parametrize("name", WEIGHT_TYPES)
def test_packing_gives_the_bytes_of_the_numpy_twin(name: str, outputs: int) -> None:
    kind, raw = WEIGHT_TYPES[name], random_matrix(name, outputs, wide(name, 3))
    expected = kind.pack(raw)
    packed = np.zeros_like(expected)
    pack_into(kind, raw, packed)
    assert np.array_equal(packed, expected)


@pytest.mark.parametrize("name", WEIGHT_TYPES)
def test_any_bytes_at_all_are_packed_as_the_numpy_twin_does(name: str) -> None:
    kind = WEIGHT_TYPES[name]
    row_bytes = random_matrix(name, 1, wide(name, 2)).shape[1]
    raw = np.random.default_rng(4).integers(0, 256, (32, row_bytes), np.uint8)
    expected = kind.pack(raw)
    packed = np.zeros_like(expected)
    pack_into(kind, raw, packed)
    assert np.array_equal(packed, expected)


@pytest.mark.parametrize("name", WEIGHT_TYPES)
def test_matrices_packed_piece_by_piece_join(name: str) -> None:
    kind, raw = WEIGHT_TYPES[name], random_matrix(name, 53, wide(name, 1))
    expected = kind.pack(raw)
    packed = np.zeros_like(expected)
    for first, last in ((3, 4), (0, 1), (1, 3)):
        pack_into(kind, raw[first * 16 : last * 16], packed[first:last])
    assert np.array_equal(packed, expected)


@pytest.mark.parametrize("name", WEIGHT_TYPES)
def test_rows_are_dequantized_to_the_bits_of_the_numpy_twin(name: str) -> None:
    kind, raw = WEIGHT_TYPES[name], hard_matrix(name)
    expected = kind.dequantize(raw)
    numbers = np.array([*range(21), 20, 0, 7, 7])
    values = np.full((len(numbers), expected.shape[1]), np.nan, np.float32)
    dequantize_rows(kind, raw, numbers, values)
    assert same_bits(values, expected[numbers])
