"""Opens one .safetensors file as a read-only mapping, by the format's own strict rules, with nothing taken on trust.

Layout: u64 length of the header, little endian; the header, a JSON object that gives each tensor's `dtype`, `shape` and
`data_offsets` [begin, end) from the end of the header; then the tensors' bytes, without gaps (the safetensors format).
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError, UnsupportedModelError
from engine.weights.files.json_file import parse_json_object
from engine.weights.files.mapped_bytes import MappedBytes, checked_extent
from engine.weights.files.weights_file import row_runs

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000  # the reference library's own limit
MAX_DIMENSIONS = 16
MAX_SIZE = 1 << 63  # JSON's numbers have no end
# Bits an element, of every type of the format.
DTYPE_BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies in its file, and what it is."""

    name: str
    dtype: str  # the format's name: "BF16", ...
    shape: tuple[int, ...]
    offset: int  # bytes from the start of the file
    nbytes: int

    @property
    def rows(self) -> int:
        """Leading axes flattened; a vector is one row."""
        return math.prod(self.shape[:-1])


class SafetensorsFile:
    """One open file."""

    def __init__(self, path: Path) -> None:
        """Raises ModelNotFoundError, ModelFileError or UnsupportedModelError, whatever the file holds."""
        self.path = path
        self._mapped = MappedBytes(path, ".safetensors")
        try:
            self.tensors = _read_header(self._mapped)
        except BaseException:
            self._mapped.close()
            raise

    def __len__(self) -> int:
        """Bytes of the file."""
        return len(self._mapped)

    def view(self, name: str) -> NDArray[np.uint8]:
        """All rows as they lie in the file: uint8 [rows, row_bytes], a read-only view of the mapping."""
        tensor = self.tensors[name]
        return self._mapped.view(tensor.offset, tensor.nbytes).reshape(tensor.rows, -1)

    def rows(self, name: str, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Some rows as they lie in the file, read in the order of their numbers: uint8 [numbers, row_bytes]."""
        tensor = self.tensors[name]
        row_bytes = tensor.nbytes // tensor.rows
        order = np.argsort(numbers, kind="stable")
        found, at = np.empty((len(numbers), row_bytes), np.uint8), 0
        for first, count in row_runs(numbers[order]):
            self._mapped.read_into(tensor.offset + first * row_bytes, found[at : at + count])
            at += count
        if np.array_equal(order, np.arange(len(order))):
            return found
        placed = np.empty_like(found)
        placed[order] = found
        return placed

    def check_size(self) -> None:
        self._mapped.check_size()

    def close(self) -> None:
        self._mapped.close()


def _read_header(mapped: MappedBytes) -> dict[str, StoredTensor]:
    path, size = mapped.path, len(mapped)
    checked_extent(0, LENGTH_BYTES, size, "the length of the header", path)
    length = int.from_bytes(mapped.buffer[:LENGTH_BYTES], "little")
    if length > MAX_HEADER_BYTES:
        raise ModelFileError(f"{path} is not a sound safetensors file: its header claims {length} bytes.")
    start = checked_extent(LENGTH_BYTES, length, size, "the header", path)
    header = parse_json_object(mapped.buffer[LENGTH_BYTES:start], path)
    header.pop("__metadata__", None)
    tensors = [_read_entry(name, entry, start, path) for name, entry in header.items()]
    _check_contiguous(tensors, start, size, path)
    return {tensor.name: tensor for tensor in tensors}


def _read_entry(name: str, entry: Any, start: int, path: Path) -> StoredTensor:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ModelFileError(f"{path} is broken: its header does not say what the tensor {name!r} is.")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise UnsupportedModelError(f"{path}: the tensor {name!r} is of the type {dtype!r}, which is not known.")
    if not _are_sizes(shape) or len(shape) > MAX_DIMENSIONS or not _are_sizes(offsets) or len(offsets) != 2:
        raise ModelFileError(f"{path} is broken: the shape or the place of the tensor {name!r} is no list of sizes.")
    begin, end = offsets
    bits = math.prod(shape) * DTYPE_BITS[dtype]
    if bits != (end - begin) * 8:
        raise ModelFileError(
            f"{path} is broken: the tensor {name!r} of shape {shape} and type {dtype} cannot take {end - begin} bytes."
        )
    return StoredTensor(name, dtype, tuple(shape), start + begin, end - begin)


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and 0 <= size < MAX_SIZE for size in value)


def _check_contiguous(tensors: list[StoredTensor], start: int, size: int, path: Path) -> None:
    end = start
    for tensor in sorted(tensors, key=lambda tensor: (tensor.offset, tensor.nbytes)):
        if tensor.offset != end:
            raise ModelFileError(f"{path} is broken: there is a gap or an overlap before the tensor {tensor.name!r}.")
        end = checked_extent(tensor.offset, tensor.nbytes, size, f"the tensor {tensor.name!r}", path)
    if end != size:
        raise ModelFileError(f"{path} is broken: {size - end} bytes after the last tensor belong to none.")
