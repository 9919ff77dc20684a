"""Writes a GGUF file (version 3, little endian): header first, then tensors one by one, each in pieces.

The layout is that of gguf.py.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO

import numpy as np
from numpy.typing import NDArray

from engine.weights.files.gguf_tensors import GGML_TYPES
from engine.weights.files.gguf_values import ARRAY, BOOL, NUMBER_DTYPES, STRING, MetadataValue

VERSION = 3
ALIGNMENT = 32
_UINT32, _INT32, _FLOAT32, _UINT64, _INT64 = 4, 5, 6, 10, 11
_TYPE_IDS = {ggml_type.name: ggml_type.id for ggml_type in GGML_TYPES.values()}


@dataclass(frozen=True, slots=True)
class OutgoingTensor:
    """What the header says of a tensor; the bytes come later."""

    name: str
    shape: tuple[int, ...]
    type: str

    @property
    def nbytes(self) -> int:
        kind = GGML_TYPES[_TYPE_IDS[self.type]]
        elements = 1
        for size in self.shape:
            elements *= size
        return elements // kind.block_elements * kind.block_bytes


def write_gguf(
    file: IO[bytes],
    metadata: Mapping[str, MetadataValue],
    tensors: Iterable[tuple[OutgoingTensor, Iterator[NDArray[np.uint8]]]],
) -> None:
    """Write all; the pieces of a tensor are asked for when it is its turn."""
    listed = list(tensors)
    file.write(_header(metadata, [tensor for tensor, _ in listed]))
    for tensor, pieces in listed:
        written = 0
        for piece in pieces:
            written += file.write(np.ascontiguousarray(piece).data)
        assert written == tensor.nbytes, tensor.name
        file.write(bytes(-written % ALIGNMENT))


def _header(metadata: Mapping[str, MetadataValue], tensors: list[OutgoingTensor]) -> bytes:
    parts = [b"GGUF", struct.pack("<IQQ", VERSION, len(tensors), len(metadata))]
    parts += [_string(key) + _value(value) for key, value in metadata.items()]
    offset = 0
    for tensor in tensors:
        dimensions = tensor.shape[::-1]  # the contiguous one first
        parts.append(_string(tensor.name) + struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions))
        parts.append(struct.pack("<IQ", _TYPE_IDS[tensor.type], offset))
        offset += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
    header = b"".join(parts)
    return header + bytes(-len(header) % ALIGNMENT)


def _value(value: MetadataValue) -> bytes:
    """Type and value."""
    if isinstance(value, list | np.ndarray):
        return struct.pack("<I", ARRAY) + _array(value)
    kind = _scalar_type(value)
    if isinstance(value, str):
        return struct.pack("<I", kind) + _string(value)
    dtype = np.dtype("u1") if kind == BOOL else NUMBER_DTYPES[kind]
    return struct.pack("<I", kind) + np.array(value, dtype).tobytes()


def _scalar_type(value: bool | int | float | str) -> int:
    """The narrowest that other readers expect: counts are u32, numbers f32."""
    match value:
        case bool():
            return BOOL
        case str():
            return STRING
        case float():
            return _FLOAT32
        case int() if 0 <= value < 2**32:
            return _UINT32
        case int() if value < 0:
            return _INT32 if value >= -(2**31) else _INT64
    return _UINT64


def _array(values: "NDArray[np.generic] | list[str] | list[MetadataValue]") -> bytes:
    """Element type, length and elements; a list holds strings or arrays."""
    if isinstance(values, np.ndarray):
        if values.dtype == np.bool_:
            return struct.pack("<IQ", BOOL, len(values)) + values.tobytes()
        kind = next(number for number, dtype in NUMBER_DTYPES.items() if dtype == values.dtype)
        return struct.pack("<IQ", kind, len(values)) + values.tobytes()
    if all(isinstance(value, str) for value in values):
        return struct.pack("<IQ", STRING, len(values)) + b"".join(_string(str(value)) for value in values)
    arrays = [value for value in values if isinstance(value, list | np.ndarray)]
    return struct.pack("<IQ", ARRAY, len(values)) + b"".join(map(_array, arrays))


def _string(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(raw)) + raw
