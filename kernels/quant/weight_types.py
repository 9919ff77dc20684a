"""The weight types that can be executed, by their GGML name: how to pack and how to dequantize each."""

import numpy as np

from kernels.quant import floats, q4_0, q4_1, q5_0, q5_1, q8_0
from kernels.quant.block32 import VALUES, Block32
from kernels.quant.floats import FloatType

WeightType = Block32 | FloatType

_UNPACK = {
    "Q4_0": (q4_0.Q4_0, q4_0.unpack),
    "Q4_1": (q4_1.Q4_1, q4_1.unpack),
    "Q5_0": (q5_0.Q5_0, q5_0.unpack),
    "Q5_1": (q5_1.Q5_1, q5_1.unpack),
    "Q8_0": (q8_0.Q8_0, q8_0.unpack),
}
WEIGHT_TYPES: dict[str, WeightType] = {
    "F32": floats.F32_TYPE,
    "F16": floats.F16_TYPE,
    "BF16": floats.BF16_TYPE,
    **{name: kind for name, (kind, _) in _UNPACK.items()},
}


def pack(kind: WeightType, raw: np.ndarray) -> np.ndarray:
    """Repack a matrix: uint8 [rows, row_bytes] as in the file -> uint8 [groups of 16 rows, blocks, packed_bytes]."""
    if isinstance(kind, FloatType):
        return kind.pack(raw)
    scales, minimums, weights = _UNPACK[kind.name][1](_blocks(kind, raw))
    return kind.pack_blocks(scales, minimums, weights)


def dequantize(kind: WeightType, raw: np.ndarray) -> np.ndarray:
    """Return float32 [rows, columns] of a matrix as in the file; the arithmetic of ggml's reference, in float32."""
    if isinstance(kind, FloatType):
        return floats.dequantize(kind, raw)
    scales, minimums, weights = _UNPACK[kind.name][1](_blocks(kind, raw))
    values = scales[..., None].astype(np.float32) * (weights.astype(np.float32) - np.float32(kind.offset))
    if minimums is not None:
        values += minimums[..., None].astype(np.float32)
    return values.reshape(len(raw), -1)


def _blocks(kind: Block32, raw: np.ndarray) -> np.ndarray:
    return raw.reshape(len(raw), -1, kind.file_bytes)


def blocks_of(kind: WeightType, columns: int) -> int:
    """Return how many packed blocks a row of `columns` values has."""
    return columns if isinstance(kind, FloatType) else columns // VALUES
