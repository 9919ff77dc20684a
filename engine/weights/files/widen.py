"""Floats of fewer bits as float32, exactly."""

import numpy as np
from numpy.typing import NDArray

FLOAT_TYPES = ("F32", "F16", "BF16")


def as_float32(type_name: str, rows: NDArray[np.uint8]) -> NDArray[np.float32]:
    """uint8 [rows, row_bytes] of F32, F16 or BF16 -> float32 [rows, columns]."""
    rows = np.ascontiguousarray(rows)
    match type_name:
        case "F32":
            return rows.view(np.float32)
        case "F16":
            return rows.view(np.float16).astype(np.float32)
    return (rows.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
