"""F32, F16 and BF16 weights: multiplied as they are with f32 activations, one fma a value in ascending k.

In memory 16 rows stand together: [groups][k][16 rows], each value in its own format.
BF16 is the upper half of a float32 (its bits shifted left by 16).
"""

from dataclasses import dataclass

import numpy as np

from kernels.build.toolchain import cgutils, intrinsic, ir, types
from kernels.quant.quads import ROWS
from kernels.simd.halves import half_to_float
from kernels.simd.tiers import TIERS_BY_NUMBER
from kernels.simd.vectors import F32, I16, I32, I64, constant, fused_multiply_add, load, splat


@dataclass(frozen=True)
class FloatType:
    """One unquantized weight type; a "block" is a single value of 16 rows."""

    name: str
    number: int
    file_bytes: int  # of one value
    takes_floats = True
    granule = ROWS  # rows of a matrix have a multiple of this many values

    @property
    def packed_bytes(self):
        """Bytes of one value of 16 rows."""
        return ROWS * self.file_bytes

    def pack(self, raw):
        """uint8 [rows, columns * file_bytes] -> uint8 [groups, columns, 16 * file_bytes]."""
        rows, row_bytes = raw.shape
        columns = row_bytes // self.file_bytes
        values = np.ascontiguousarray(raw).view(f"u{self.file_bytes}")
        groups = -(-rows // ROWS)
        packed = np.zeros((groups * ROWS, columns), values.dtype)
        packed[:rows] = values
        by_column = packed.reshape(groups, ROWS, columns).transpose(0, 2, 1)
        return np.ascontiguousarray(by_column).view(np.uint8).reshape(groups, columns, self.packed_bytes)

    def emit_values(self, builder, address, rows):
        """Load one value of `rows` rows as float32."""
        floats = ir.VectorType(F32, rows)
        if self.name == "F32":
            return load(builder, address, floats)
        if self.name == "F16":
            return half_to_float(builder, load(builder, address, ir.VectorType(I16, rows)))
        bits = builder.zext(load(builder, address, ir.VectorType(I16, rows)), ir.VectorType(I32, rows))
        return builder.bitcast(builder.shl(bits, constant(bits.type, 16)), floats)


F32_TYPE = FloatType(name="F32", number=16, file_bytes=4)
F16_TYPE = FloatType(name="F16", number=17, file_bytes=2)
BF16_TYPE = FloatType(name="BF16", number=18, file_bytes=2)
FLOATS_BY_NUMBER = {kind.number: kind for kind in (F32_TYPE, F16_TYPE, BF16_TYPE)}


def dequantize(kind, raw):
    """uint8 [rows, columns * file_bytes] -> float32 [rows, columns]."""
    raw = np.ascontiguousarray(raw)
    if kind is F32_TYPE:
        return raw.view(np.float32)
    if kind is F16_TYPE:
        return raw.view(np.float16).astype(np.float32)
    return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


@intrinsic(prefer_literal=True)
def accumulate_value(typingctx, accumulators, weights, activations, kind, lanes, tier):
    """Add one k to the accumulators: 16 weights at `weights`, `lanes` float32 activations side by side."""
    weight_type, width = FLOATS_BY_NUMBER[kind.literal_value], lanes.literal_value
    rows = TIERS_BY_NUMBER[tier.literal_value].dot.rows

    def codegen(context, builder, signature, arguments):
        values, weights, activations = arguments[:3]
        values = cgutils.unpack_tuple(builder, values, accumulators.count)
        for part in range(ROWS // rows):
            address = builder.add(weights, I64(part * rows * weight_type.file_bytes))
            row_weights = weight_type.emit_values(builder, address, rows)
            for lane in range(width):
                activation = load(builder, builder.add(activations, I64(4 * lane)), F32)
                index = part * width + lane
                values[index] = fused_multiply_add(
                    builder, row_weights, splat(builder, activation, rows), values[index]
                )
        return cgutils.pack_array(builder, values)

    return accumulators(accumulators, types.uintp, types.uintp, kind, lanes, tier), codegen
