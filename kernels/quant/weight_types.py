"""The weight types that can be executed: ALL of them, by GGML's name and by number; F32, F16 and BF16 are defined here.

Quantized types are defined in block32.py and block256.py. Weights of floats are multiplied as they are with f32
activations, one fma a value in ascending k. In memory 16 rows of them stand together: [groups][k][16 rows], each value
in its own format. BF16 is the upper half of a float32 (its bits shifted left by 16).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kernels.build.toolchain import ir
from kernels.quant.block32 import IQ4_NL, MXFP4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Block32
from kernels.quant.block256 import IQ4_XS, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Block256
from kernels.quant.quads import ROWS
from kernels.simd.halves import load_f16
from kernels.simd.vectors import F32 as FLOAT
from kernels.simd.vectors import I16, I32, constant, load


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatType:
    """One unquantized weight type; a "block" is a single value of 16 rows."""

    name: str
    number: int  # GGML's; what kernels are compiled for
    file_bytes: int  # of one value
    takes_floats: ClassVar[bool] = True
    values: ClassVar[int] = 1
    granule: ClassVar[int] = ROWS  # rows of a matrix have a multiple of this many values

    @property
    def packed_bytes(self) -> int:
        """Bytes of one value of 16 rows."""
        return ROWS * self.file_bytes

    def pack(self, raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """uint8 [rows, columns * file_bytes] -> uint8 [groups, columns, 16 * file_bytes]."""
        rows, row_bytes = raw.shape
        columns = row_bytes // self.file_bytes
        values = np.ascontiguousarray(raw).view(f"u{self.file_bytes}")
        groups = -(-rows // ROWS)
        packed = np.zeros((groups * ROWS, columns), values.dtype)
        packed[:rows] = values
        by_column = packed.reshape(groups, ROWS, columns).transpose(0, 2, 1)
        return np.ascontiguousarray(by_column).view(np.uint8).reshape(groups, columns, self.packed_bytes)

    def dequantize(self, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
        """uint8 [rows, columns * file_bytes] -> float32 [rows, columns]."""
        raw = np.ascontiguousarray(raw)
        if self is F32:
            return raw.view(np.float32)
        if self is F16:
            return raw.view(np.float16).astype(np.float32)
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)

    def emit_values(self, builder, address, rows):
        """Load one value of `rows` rows as float32."""
        floats = ir.VectorType(FLOAT, rows)
        if self is F32:
            return load(builder, address, floats)
        if self is F16:
            return load_f16(builder, address, rows)
        bits = builder.zext(load(builder, address, ir.VectorType(I16, rows)), ir.VectorType(I32, rows))
        return builder.bitcast(builder.shl(bits, constant(bits.type, 16)), floats)


F32 = FloatType(name="F32", number=0, file_bytes=4)
F16 = FloatType(name="F16", number=1, file_bytes=2)
BF16 = FloatType(name="BF16", number=30, file_bytes=2)

QuantizedType = Block32 | Block256
WeightType = QuantizedType | FloatType
ALL: tuple[WeightType, ...] = (
    *(F32, F16, BF16),
    *(Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4),
    *(Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS),
)
WEIGHT_TYPES = {kind.name: kind for kind in ALL}
# What a kernel is compiled for; the kernel knows whether its type has blocks.
TYPES_BY_NUMBER: dict[int, Any] = {kind.number: kind for kind in ALL}
