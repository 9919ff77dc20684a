"""The weight types that can be executed, by their GGML name: how to pack and how to dequantize each."""

import numpy as np

from kernels.quant import floats
from kernels.quant.block32 import Block32
from kernels.quant.block256 import Block256, Unpacked256
from kernels.quant.floats import FloatType
from kernels.quant.types import iq4_nl, iq4_xs, mxfp4, q2_k, q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0

BlockType = Block32 | Block256
WeightType = BlockType | FloatType

_UNPACK32 = {
    "Q4_0": (q4_0.Q4_0, q4_0.unpack),
    "Q4_1": (q4_1.Q4_1, q4_1.unpack),
    "Q5_0": (q5_0.Q5_0, q5_0.unpack),
    "Q5_1": (q5_1.Q5_1, q5_1.unpack),
    "Q8_0": (q8_0.Q8_0, q8_0.unpack),
    "IQ4_NL": (iq4_nl.IQ4_NL, iq4_nl.unpack),
    "MXFP4": (mxfp4.MXFP4, mxfp4.unpack),
}
_UNPACK256 = {
    "Q2_K": (q2_k.Q2_K, q2_k.unpack),
    "Q3_K": (q3_k.Q3_K, q3_k.unpack),
    "Q4_K": (q4_k.Q4_K, q4_k.unpack),
    "Q5_K": (q5_k.Q5_K, q5_k.unpack),
    "Q6_K": (q6_k.Q6_K, q6_k.unpack),
    "IQ4_XS": (iq4_xs.IQ4_XS, iq4_xs.unpack),
}
WEIGHT_TYPES: dict[str, WeightType] = {
    "F32": floats.F32_TYPE,
    "F16": floats.F16_TYPE,
    "BF16": floats.BF16_TYPE,
    **{name: kind for name, (kind, _) in _UNPACK32.items()},
    **{name: kind for name, (kind, _) in _UNPACK256.items()},
}


def pack(kind: WeightType, raw: np.ndarray) -> np.ndarray:
    """Repack a matrix: uint8 [rows, row_bytes] as in the file -> uint8 [groups of 16 rows, blocks, packed_bytes]."""
    if isinstance(kind, FloatType):
        return kind.pack(raw)
    if isinstance(kind, Block256):
        return kind.pack_blocks(unpack256(kind, raw))
    return kind.pack_blocks(*unpack32(kind, raw))


def unpack32(kind: Block32, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Return (scales, minimums or None, stored numbers uint8 [rows, blocks, 32]) of a matrix as in the file."""
    scales, minimums, weights = _UNPACK32[kind.name][1](_blocks(kind, raw))
    return scales, minimums, weights


def unpack256(kind: Block256, raw: np.ndarray) -> Unpacked256:
    """Return the numbers of a matrix as in the file."""
    return Unpacked256(*_UNPACK256[kind.name][1](_blocks(kind, raw)))


def dequantize(kind: WeightType, raw: np.ndarray) -> np.ndarray:
    """Return float32 [rows, columns] of a matrix as in the file; the arithmetic of ggml's reference, in float32."""
    if isinstance(kind, FloatType):
        return floats.dequantize(kind, raw)
    values = _dequantize256(kind, raw) if isinstance(kind, Block256) else _dequantize32(kind, raw)
    return values.reshape(len(raw), -1)


def whole_numbers(kind: BlockType, weights: np.ndarray) -> np.ndarray:
    """Return w - offset as int32, by the stored numbers."""
    if kind.table is not None:
        weights = np.array(kind.table, np.int32)[weights]
    return weights.astype(np.int32) - kind.offset


def float_scales(kind: Block32, scales: np.ndarray) -> np.ndarray:
    """Return a 32-value type's scales as float32."""
    if kind.scale_format == "e8m0":
        exponents = scales.astype(np.uint32)
        subnormal = np.uint32(0x00200000) << np.minimum(exponents, 1)
        return np.where(exponents < 2, subnormal, (exponents - 1) << 23).astype(np.uint32).view(np.float32)
    return scales.astype(np.float32)


def _dequantize32(kind: Block32, raw: np.ndarray) -> np.ndarray:
    scales, minimums, weights = unpack32(kind, raw)
    values: np.ndarray = float_scales(kind, scales)[..., None] * whole_numbers(kind, weights).astype(np.float32)
    return values if minimums is None else values + minimums[..., None].astype(np.float32)


def _dequantize256(kind: Block256, raw: np.ndarray) -> np.ndarray:
    numbers = unpack256(kind, raw)
    whole = whole_numbers(kind, numbers.weights).reshape(*numbers.scales.shape, kind.sub_values)
    scales = numbers.d.astype(np.float32)[..., None] * numbers.scales.astype(np.float32)
    values: np.ndarray = scales[..., None] * whole.astype(np.float32)
    if numbers.d_minimum is None or numbers.minimums is None:
        return values
    minimums = numbers.d_minimum.astype(np.float32)[..., None] * numbers.minimums.astype(np.float32)
    return values - minimums[..., None]


def _blocks(kind: BlockType, raw: np.ndarray) -> np.ndarray:
    return raw.reshape(len(raw), -1, kind.file_bytes)


def blocks_of(kind: WeightType, columns: int) -> int:
    """Return how many packed blocks a row of `columns` values has."""
    return columns if isinstance(kind, FloatType) else columns // kind.values
