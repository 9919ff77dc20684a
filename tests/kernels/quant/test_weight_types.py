"""Weight types: dequantizing against the `gguf` package, and the packed bytes read back from their description."""

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.quant.block32 import Block32
from kernels.quant.block256 import Block256
from kernels.quant.weight_types import WEIGHT_TYPES, FloatType, QuantizedType
from tests.kernels.ops import MINIMUM_AT, QUANTIZED, SCALE_AT, hard_matrix, random_matrix, wide

Bytes = NDArray[np.uint8]

# By bits of a value, where the x16 layout has the bits of each k-quad: (vector, first bit, bits), lowest bits first.
PLACES = {
    2: [[(quad % 2, quad // 2 * 2, 2)] for quad in range(8)],
    3: [[(quad % 2, quad // 2 * 2, 2), (2, quad, 1)] for quad in range(8)],
    4: [[(quad % 4, quad // 4 * 4, 4)] for quad in range(8)],
    5: [
        *([(0, 0, 5)], [(1, 0, 5)], [(0, 5, 3), (1, 5, 2)]),
        *([(2, 0, 5)], [(3, 0, 5)], [(2, 5, 3), (3, 5, 2)]),
        *([(4, 0, 5)], [(4, 5, 3), (1, 7, 1), (3, 7, 1)]),
    ],
    6: [
        *([(0, 0, 6)], [(1, 0, 6)], [(2, 0, 6)], [(0, 6, 2), (1, 6, 2), (2, 6, 2)]),
        *([(3, 0, 6)], [(4, 0, 6)], [(5, 0, 6)], [(3, 6, 2), (4, 6, 2), (5, 6, 2)]),
    ],
    8: [[(quad, 0, 8)] for quad in range(8)],
}


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
    for table in (SCALE_AT, MINIMUM_AT):
        if name in table:
            raw[..., table[name] + 1] &= 0xFB
    return raw.reshape(40, -1)


@pytest.mark.parametrize("make", [random_bytes, hard_matrix])
@pytest.mark.parametrize("name", WEIGHT_TYPES)
def test_dequantizing_gives_the_bits_of_the_gguf_package(name: str, make: object) -> None:
    raw = make(name)  # type: ignore[operator]
    with np.errstate(over="ignore"):  # the largest exponents of MXFP4
        ours, theirs = WEIGHT_TYPES[name].dequantize(raw), by_the_gguf_package(name, raw)
    assert np.array_equal(ours.view(np.uint32), theirs.view(np.uint32))


@pytest.mark.parametrize("name", WEIGHT_TYPES)
def test_blocks_hold_as_many_values_and_bytes_as_the_gguf_package_says(name: str) -> None:
    kind = WEIGHT_TYPES[name]
    values, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    assert 2 * 256 // kind.values == 2 * 256 // values
    assert kind.file_bytes == size


def test_every_exponent_is_a_scale_as_in_the_gguf_package() -> None:
    exponents = np.arange(256, dtype=np.uint8)
    blocks = np.zeros((256, 17), np.uint8)
    blocks[:, 0], blocks[:, 1:] = exponents, 0x11  # the number 1, which is twice the value 1/2
    kind = WEIGHT_TYPES["MXFP4"]
    assert isinstance(kind, Block32)
    assert np.array_equal(kind.float_scales(exponents), by_the_gguf_package("MXFP4", blocks)[:, 0])


@pytest.mark.parametrize("outputs", [1, 16, 21])
@pytest.mark.parametrize("name", QUANTIZED)
def test_packed_blocks_hold_the_same_values_and_zeros_below_them(name: str, outputs: int) -> None:
    kind = WEIGHT_TYPES[name]
    assert isinstance(kind, Block32 | Block256)
    raw = random_matrix(name, outputs, wide(name, 2))
    packed = kind.pack(raw)
    assert packed.shape == (-(-outputs // 16), 2, kind.packed_bytes)
    values = unpacked(kind, packed)
    assert np.array_equal(values[:outputs], kind.dequantize(raw))
    assert not values[outputs:].any()


def unpacked(kind: QuantizedType, packed: Bytes) -> NDArray[np.float32]:
    """Read the x16 layout value by value, as its modules describe it: float32 [padded outputs, columns]."""
    groups, blocks, _ = packed.shape
    values = np.zeros((groups, 16, blocks, kind.values), np.float32)
    for group, row, block in np.ndindex(groups, 16, blocks):
        data = packed[group, block]
        numbers = np.array([packed_number(kind, data[kind.values_at :], row, k) for k in range(kind.values)])
        weights = numbers if kind.table is None else np.array(kind.table)[numbers]
        scales, minimums = factors32(kind, data, row) if isinstance(kind, Block32) else factors256(kind, data, row)
        by_sub_block = (weights - kind.offset).astype(np.float32).reshape(len(scales), -1)
        values[group, row, block] = (scales[:, None] * by_sub_block + minimums[:, None]).ravel()
    return values.reshape(groups * 16, -1)


def packed_number(kind: QuantizedType, units: Bytes, row: int, k: int) -> int:
    """The stored number of one row and value."""
    start, number, taken = k // 32 * 64 * kind.bits, 0, 0
    for vector, first_bit, bits in PLACES[kind.bits][k % 32 // 4]:
        byte = int(units[start + 64 * vector + 4 * row + k % 4])
        number |= (byte >> first_bit) % (1 << bits) << taken
        taken += bits
    return number


def factors32(kind: Block32, data: Bytes, row: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The scale and the minimum of one row's block."""
    if kind.has_exponents:
        return np.ldexp(np.ones(1, np.float32), int(data[row]) - 128), np.zeros(1, np.float32)
    halves = data[: kind.values_at].view(np.float16).astype(np.float32)
    return halves[row : row + 1], halves[16 + row : 17 + row] if kind.has_minimum else np.zeros(1, np.float32)


def factors256(kind: Block256, data: Bytes, row: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The scales of one row's sub-blocks, and what is added after them."""
    halves = data[: kind.scales_at].view(np.float16).astype(np.float32)
    sub_blocks = np.arange(256 // kind.sub_values)
    places = sub_blocks // 2 * 32 + 2 * row + sub_blocks % 2
    scales = data[kind.scales_at + places]
    if not kind.has_minimum:
        return halves[row] * scales.view(np.int8).astype(np.float32), np.zeros(len(scales), np.float32)
    minimums = scales >> 4 if kind.sub_values == 16 else data[kind.minimums_at + places]
    scales = scales & 15 if kind.sub_values == 16 else scales
    return halves[row] * scales.astype(np.float32), -(halves[16 + row] * minimums.astype(np.float32))


@pytest.mark.parametrize("outputs", [1, 16, 21])
@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_packed_floats_stand_by_column(name: str, outputs: int) -> None:
    kind, raw = WEIGHT_TYPES[name], random_matrix(name, outputs, 48)
    packed = kind.pack(raw)
    values = packed.view(f"u{kind.file_bytes}").transpose(0, 2, 1).reshape(-1, 48)
    assert np.array_equal(values[:outputs], raw.view(f"u{kind.file_bytes}"))
    assert not values[outputs:].any()


def test_rows_are_whole_blocks_and_float_ones_whole_vectors() -> None:
    by_granule = {granule: [n for n, kind in WEIGHT_TYPES.items() if kind.granule == granule] for granule in (16, 32)}
    assert by_granule[16] == ["F32", "F16", "BF16"]
    assert by_granule[32] == ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4"]
    assert all(kind.granule == 256 for name, kind in WEIGHT_TYPES.items() if name.endswith(("_K", "_XS")))


def test_the_numbers_that_kernels_are_specialised_on_are_all_different() -> None:
    assert len({kind.number for kind in WEIGHT_TYPES.values()}) == len(WEIGHT_TYPES)
