"""Random quantized matrices of every GGML weight type, with values of a wanted spread.

All bits of a block are random, but for its f16 scales (and minimums) or E8M0 exponent, which are constants: a random
f16 could be infinite. The constants follow from measuring what a few blocks dequantize to.
"""

import gguf
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

# Byte offset -> relative size of each f16 of a block (ggml-common.h); a minimum cancels the mean of the others.
_HALVES: dict[str, dict[int, float]] = {
    "Q4_0": {0: 1},
    "Q4_1": {0: 1, 2: -7.5},
    "Q5_0": {0: 1},
    "Q5_1": {0: 1, 2: -15.5},
    "Q8_0": {0: 1},
    "Q2_K": {80: 1, 82: 1.5},
    "Q3_K": {108: 1},
    "Q4_K": {0: 1, 2: 7.5},
    "Q5_K": {0: 1, 2: 15.5},
    "Q6_K": {208: 1},
    "IQ4_NL": {0: 1},
    "IQ4_XS": {0: 1},
}
FLOATS = ("F32", "F16", "BF16")
TYPES = (*FLOATS, *_HALVES, "MXFP4")
_SAMPLE_BLOCKS = 256


def row_bytes(type_name: str, columns: int) -> int:
    """Return the bytes of one row; ValueError where `columns` is no whole number of blocks."""
    values, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name]]
    if columns % values:
        raise ValueError(f"rows of {columns} values are no whole number of {type_name} blocks of {values}")
    return int(columns // values * size)


def random_matrix(random: np.random.Generator, type_name: str, rows: int, columns: int, spread: float) -> Bytes:
    """Return uint8 [rows, row bytes] as a GGUF file holds it; the values have a standard deviation near `spread`."""
    if type_name in FLOATS:
        values = random.standard_normal((rows, columns), dtype=np.float32) * np.float32(spread)
        stored: Bytes = gguf.quants.quantize(values, gguf.GGMLQuantizationType[type_name]).view(np.uint8)
        return stored
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name]][1]
    blocks = np.frombuffer(random.bytes(rows * row_bytes(type_name, columns)), np.uint8).reshape(-1, size).copy()
    _set_scales(blocks, type_name, 1.0)
    measured = float(_dequantized(blocks[:_SAMPLE_BLOCKS], type_name).std())
    _set_scales(blocks, type_name, spread / measured)
    return blocks.reshape(rows, -1)


def _set_scales(blocks: Bytes, type_name: str, scale: float) -> None:
    if type_name == "MXFP4":
        blocks[:, 0] = 127 + round(np.log2(scale))
        return
    for offset, relative in _HALVES[type_name].items():
        blocks[:, offset : offset + 2] = np.array([relative * scale], np.float16).view(np.uint8)


def _dequantized(blocks: Bytes, type_name: str) -> NDArray[np.float32]:
    values: NDArray[np.float32] = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[type_name])
    return values
