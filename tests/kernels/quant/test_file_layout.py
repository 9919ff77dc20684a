"""A type whose numbers are points of a codebook (IQ3_S) can be said: a layout of its own is all that it takes."""

from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.build.toolchain import cgutils, ir
from kernels.quant import repack, rows, weight_types
from kernels.quant.block256 import Block256
from kernels.quant.file_layout import CHUNK, Bits, FileLayout
from kernels.simd.vectors import I8, I16, I32, I64, constant, load
from tests.kernels.ops import same_bits

Bytes = NDArray[np.uint8]
INDICES_AT, HIGH_BITS_AT, SIGNS_AT, FILE_BYTES = 2, 66, 74, 110


@dataclass(frozen=True, kw_only=True)
class Codebook(FileLayout):
    """IQ3_S: 9 bits choose a point of four odd numbers up to 15, a bit each is a sign; stored is (number + 15) / 2."""

    points: tuple[tuple[int, ...], ...]  # as stored, were all signs positive

    def read_weights(self, raw: Bytes) -> Bytes:
        """See FileLayout."""
        high = np.unpackbits(raw[..., HIGH_BITS_AT:SIGNS_AT], axis=-1, bitorder="little")
        chosen = np.array(self.points, np.uint8)[raw[..., INDICES_AT:HIGH_BITS_AT] + 256 * high.astype(int)]
        numbers = chosen.reshape(*raw.shape[:2], 256)
        negative = np.unpackbits(raw[..., SIGNS_AT : SIGNS_AT + 32], axis=-1, bitorder="little")
        return np.where(negative, 15 - numbers, numbers)

    def emit_weights(self, builder: Any, block: Any, first: int) -> Any:
        """See FileLayout."""
        packed = [sum(number << 8 * i for i, number in enumerate(point)) for point in self.points]
        table = cgutils.global_constant(
            builder, "iq3_s_points", ir.Constant(ir.ArrayType(I32, len(packed)), [I32(point) for point in packed])
        )
        numbers = ir.Constant(ir.VectorType(I32, 4), ir.Undefined)
        for number in range(4):
            index = first // 4 + number
            low = builder.zext(load(builder, builder.add(block, I64(INDICES_AT + index)), I8), I32)
            high = builder.zext(load(builder, builder.add(block, I64(HIGH_BITS_AT + index // 8)), I8), I32)
            bit = builder.and_(builder.lshr(high, I32(index % 8)), I32(1))
            place = builder.gep(table, [I32(0), builder.or_(low, builder.shl(bit, I32(8)))])
            numbers = builder.insert_element(numbers, builder.load(place), I32(number))
        positive = builder.bitcast(numbers, ir.VectorType(I8, CHUNK))
        signs = load(builder, builder.add(block, I64(SIGNS_AT + first // 8)), I16)
        negative = builder.bitcast(signs, ir.VectorType(ir.IntType(1), CHUNK))
        return builder.select(negative, builder.sub(constant(positive.type, 15), positive), positive)

    def read_scales(self, raw: Bytes) -> NDArray[np.int16]:
        """See FileLayout."""
        scales: NDArray[np.int16] = 2 * super().read_scales(raw) + 1
        return scales

    def emit_scales(self, builder: Any, block: Any) -> Any:
        """See FileLayout."""
        scales = super().emit_scales(builder, block)
        return builder.add(builder.shl(scales, constant(scales.type, 1)), constant(scales.type, 1))


@pytest.fixture
def iq3_s(monkeypatch: pytest.MonkeyPatch) -> Block256:
    grid = gguf.quants.IQ3_S
    grid.init_grid()
    assert grid.grid is not None
    points = (grid.grid.reshape(512, 4).astype(int) + 15) // 2
    kind = Block256(
        name="IQ3_S",
        number=21,
        file_bytes=FILE_BYTES,
        bits=4,
        offset=15,
        table=tuple(range(0, 31, 2)),
        sub_values=32,
        max_scale=31,
        layout=Codebook(
            scale_at=0,
            weights=(),
            scales=(Bits(at=106, width=4, planes=2, run=1, runs=4),),
            points=tuple(map(tuple, points.tolist())),
        ),
    )
    monkeypatch.setitem(weight_types.TYPES_BY_NUMBER, kind.number, kind)
    return kind


def random_blocks(seed: int) -> Bytes:
    """uint8 [21, 3 * 110], with f16 scales that are numbers."""
    raw = np.random.default_rng(seed).integers(0, 256, (21, 3, FILE_BYTES), np.uint8)
    raw[..., 1] &= 0xBB
    return raw.reshape(21, -1)


def test_a_codebook_is_read_as_the_gguf_package_reads_it(iq3_s: Block256) -> None:
    raw = random_blocks(1)
    assert same_bits(iq3_s.dequantize(raw), gguf.quants.dequantize(raw, gguf.GGMLQuantizationType.IQ3_S))


def test_compiled_code_reads_and_packs_a_codebook_as_numpy_does(iq3_s: Block256) -> None:
    raw, numbers = random_blocks(2), np.arange(21)
    values = np.zeros((21, 3 * 256), np.float32)
    rows.dequantize_rows(iq3_s, raw, numbers, values)
    assert same_bits(values, iq3_s.dequantize(raw))
    expected = iq3_s.pack(raw)
    packed = np.zeros_like(expected)
    repack.pack_into(iq3_s, raw, packed)
    assert np.array_equal(packed, expected)
