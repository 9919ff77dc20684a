"""Compiled dequantizing of single rows as the file holds them, for embeddings and for f32 activations.

The bits are those of the NumPy twin, the types' `dequantize`: (d * scale) * (w - offset), then the minimum.
"""

import functools

import numpy as np

from kernels.build.jit import Kernel, kernel
from kernels.build.toolchain import intrinsic, ir, types
from kernels.machine.memory import address_of
from kernels.quant.file_layout import CHUNK
from kernels.quant.weight_types import TYPES_BY_NUMBER, FloatType, WeightType
from kernels.simd.dot import GenericDot
from kernels.simd.halves import load_e8m0, load_f16
from kernels.simd.vectors import F32, I32, I64, constant, load_i64, splat, store

# (source, bytes of a row, blocks of a row, numbers of the rows: int64, how many, output: float32 [rows][columns]).
DEQUANTIZE_SIGNATURE = "void(int64, int64, int64, int64, int64, int64)"


def dequantize_rows(kind: WeightType, raw: np.ndarray, numbers: np.ndarray, output: np.ndarray) -> None:
    """Write rows `numbers` (int64) of uint8 [rows, row_bytes] to `output`, float32 [numbers, columns]."""
    RowReader(kind, raw, output.shape[1]).read(numbers, output)


class RowReader:
    """`dequantize_rows` of one matrix, for each step: what can be looked up before is."""

    def __init__(self, kind: WeightType, raw: np.ndarray, columns: int) -> None:
        self._raw = raw  # which is read by its address
        self._columns = columns
        self._blocks = columns // (CHUNK if isinstance(kind, FloatType) else kind.values)
        self._source, self._row_bytes = raw.ctypes.data, raw.shape[1]
        self._dequantizer = row_dequantizer(kind)
        _ = self._dequantizer.address  # compiled now if need be, and not in a user's request

    def read(self, numbers: np.ndarray, output: np.ndarray) -> None:
        """Write rows `numbers` (int64) to `output`, float32 [numbers, columns]."""
        assert numbers.dtype == np.int64 and output.shape == (len(numbers), self._columns)
        self._dequantizer.call(
            self._source, self._row_bytes, self._blocks, address_of(numbers), len(numbers), address_of(output)
        )


@functools.cache
def row_dequantizer(kind: WeightType) -> Kernel:
    """Return the compiled function of DEQUANTIZE_SIGNATURE for one weight type.

    A "block" of F32, F16 or BF16 is 16 values.
    """
    if isinstance(kind, FloatType):
        return _row_dequantizer(kind.number, CHUNK * kind.file_bytes, CHUNK)
    return _row_dequantizer(kind.number, kind.file_bytes, kind.values)


@kernel(DEQUANTIZE_SIGNATURE)
def _row_dequantizer(number, file_bytes, values):
    def dequantize(source, row_bytes, blocks, rows, count, output):
        for index in range(count):
            here = source + load_i64(rows + 8 * index) * row_bytes
            for _ in range(blocks):
                _dequantize_block(here, output, number)
                here += file_bytes
                output += 4 * values

    return dequantize


@intrinsic(prefer_literal=True)
def _dequantize_block(typingctx, block, output, kind):
    """Write the values of one row's block as float32."""
    weight_type = TYPES_BY_NUMBER[kind.literal_value]

    def codegen(context, builder, signature, arguments):
        block, output = arguments[:2]
        if isinstance(weight_type, FloatType):
            store(builder, weight_type.emit_values(builder, block, CHUNK), output)
        else:
            for index, value in enumerate(_emit_values(builder, block, weight_type)):
                store(builder, value, builder.add(output, I64(4 * CHUNK * index)))
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, kind), codegen


def _emit_values(builder, block, weight_type):
    """Yield a block's values, 16 floats at a time."""
    scales, minimums = _emit_factors(builder, block, weight_type.layout)
    for first in range(0, weight_type.values, CHUNK):
        sub_block = first * len(scales) // weight_type.values
        value = _emit_whole_numbers(builder, weight_type.layout.emit_weights(builder, block, first), weight_type)
        value = builder.fmul(splat(builder, scales[sub_block], CHUNK), value)
        if weight_type.has_minimum:
            value = builder.fadd(value, splat(builder, minimums[sub_block], CHUNK))
        yield value


def _emit_whole_numbers(builder, weights, weight_type):
    """w - offset, as 16 floats."""
    if weight_type.table:
        weights = GenericDot(builder, weight_type.max_weight, weight_type.offset).lookup(weights, weight_type.table)
    wide = builder.zext(weights, ir.VectorType(I32, CHUNK))
    return builder.sitofp(builder.sub(wide, constant(wide.type, weight_type.offset)), ir.VectorType(F32, CHUNK))


def _emit_factors(builder, block, layout):
    """The scale of each sub-block (or of the whole block), and what is added after it, as floats."""
    load_scale = load_e8m0 if layout.scale_bytes == 1 else load_f16
    scale = _first(builder, load_scale(builder, builder.add(block, I64(layout.scale_at)), 1))
    minimum = None
    if layout.minimum_at is not None:
        minimum = _first(builder, load_f16(builder, builder.add(block, I64(layout.minimum_at)), 1))
    if not layout.scales:
        return [scale], [minimum]
    scales = _multiples(builder, scale, layout.emit_scales(builder, block), builder.sext)
    if minimum is None:
        return scales, []
    # a - b is a + (-b), to the bit.
    return scales, _multiples(builder, builder.fneg(minimum), layout.emit_minimums(builder, block), builder.zext)


def _multiples(builder, factor, numbers, extend):
    """factor * number for each of a vector of bytes."""
    count = numbers.type.count
    floats = builder.sitofp(extend(numbers, ir.VectorType(I32, count)), ir.VectorType(F32, count))
    products = builder.fmul(splat(builder, factor, count), floats)
    return [builder.extract_element(products, I32(index)) for index in range(count)]


def _first(builder, vector):
    return builder.extract_element(vector, I32(0))
