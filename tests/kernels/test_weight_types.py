"""Weight types: dequantizing against the `gguf` package, and the packed bytes read back from their description."""

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.quant.block32 import Block32
from kernels.quant.floats import FloatType
from kernels.quant.weight_types import WEIGHT_TYPES, blocks_of, dequantize, pack
from tests.kernels.ops import QUANTIZED, hard_matrix, random_matrix

Bytes = NDArray[np.uint8]


def by_the_gguf_package(name: str, raw: Bytes) -> NDArray[np.float32]:
    values: NDArray[np.float32] = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name])
    return values


def random_bytes(name: str) -> Bytes:
    """Any bytes at all, but for f16 scales that are no numbers."""
    kind = WEIGHT_TYPES[name]
    raw = np.random.default_rng(9).integers(0, 256, (40, 4, kind.file_bytes * 16), np.uint8)
    if isinstance(kind, FloatType):
        return raw.reshape(40, -1)
    raw = raw.reshape(40, -1, kind.file_bytes)
    for at in (1, 3) if kind.has_minimum else (1,):
        raw[..., at] &= 0xFB
    return raw.reshape(40, -1)


@pytest.mark.parametrize("make", [random_bytes, hard_matrix])
@pytest.mark.parametrize("name", WEIGHT_TYPES)
def test_dequantizing_gives_the_bits_of_the_gguf_package(name: str, make: object) -> None:
    raw = make(name)  # type: ignore[operator]
    ours, theirs = dequantize(WEIGHT_TYPES[name], raw), by_the_gguf_package(name, raw)
    assert np.array_equal(ours.view(np.uint32), theirs.view(np.uint32))


@pytest.mark.parametrize("name", WEIGHT_TYPES)
def test_rows_hold_as_many_values_as_the_gguf_package_says(name: str) -> None:
    block, _ = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    assert blocks_of(WEIGHT_TYPES[name], 4 * 32) == 4 * 32 // block


@pytest.mark.parametrize("outputs", [1, 16, 21])
@pytest.mark.parametrize("name", QUANTIZED)
def test_packed_blocks_hold_the_same_values_and_zeros_below_them(name: str, outputs: int) -> None:
    kind = WEIGHT_TYPES[name]
    assert isinstance(kind, Block32)
    raw = random_matrix(name, outputs, 96)
    packed = pack(kind, raw)
    assert packed.shape == (-(-outputs // 16), 3, kind.packed_bytes)
    values = unpacked(kind, packed)
    assert np.array_equal(values[:outputs], dequantize(kind, raw))
    assert not values[outputs:].any()


def unpacked(kind: Block32, packed: Bytes) -> NDArray[np.float32]:
    """Read the x16 layout value by value, as block32.py describes it: float32 [padded outputs, columns]."""
    groups, blocks, _ = packed.shape
    values = np.zeros((groups * 16, blocks * 32), np.float32)
    for group, block, row in np.ndindex(groups, blocks, 16):
        data = packed[group, block]
        halves = data[: kind.values_at].view(np.float16).astype(np.float32)
        minimum = halves[16 + row] if kind.has_minimum else np.float32(0)
        for k in range(32):
            weight = np.float32(packed_weight(kind, data[kind.values_at :], row, k) - kind.offset)
            values[group * 16 + row, block * 32 + k] = halves[row] * weight + minimum
    return values


def packed_weight(kind: Block32, data: Bytes, row: int, k: int) -> int:
    """The unsigned weight of one row and k-value."""
    quad, place = k // 4, 4 * row + k % 4
    if kind.bits == 8:
        return int(data[64 * quad + place])
    nibble = int(data[64 * (quad % 4) + place]) >> (0 if quad < 4 else 4) & 15
    fifth = int(data[256 + place]) >> quad & 1 if kind.bits == 5 else 0
    return nibble | fifth << 4


@pytest.mark.parametrize("outputs", [1, 16, 21])
@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_packed_floats_stand_by_column(name: str, outputs: int) -> None:
    kind, raw = WEIGHT_TYPES[name], random_matrix(name, outputs, 48)
    packed = pack(kind, raw)
    values = packed.view(f"u{kind.file_bytes}").transpose(0, 2, 1).reshape(-1, 48)
    assert np.array_equal(values[:outputs], raw.view(f"u{kind.file_bytes}"))
    assert not values[outputs:].any()


@pytest.mark.parametrize("name", WEIGHT_TYPES)
def test_the_type_knows_which_row_lengths_it_can_take(name: str) -> None:
    kind = WEIGHT_TYPES[name]
    step = 16 if kind.takes_floats else 32
    assert [columns for columns in range(16, 130, 8) if kind.check(columns)] == list(range(step, 130, step))


def test_the_numbers_that_kernels_are_specialised_on_are_all_different() -> None:
    assert len({kind.number for kind in WEIGHT_TYPES.values()}) == len(WEIGHT_TYPES)
