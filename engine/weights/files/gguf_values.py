"""Reads the scalars, strings and arrays of a GGUF header, checking each against the bytes that are left."""

import mmap
import struct
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError
from engine.weights.files.mapped_bytes import checked_extent

# Numeric arrays come as NumPy arrays, arrays of strings as list[str], arrays of arrays as a list of these.
MetadataValue: TypeAlias = "bool | int | float | str | NDArray[Any] | list[str] | list[MetadataValue]"

MAX_NAME_BYTES = 65535  # the format's own limit for a key
MAX_ARRAY_DEPTH = 4
MAX_HEADER_BYTES = 100_000_000  # ten times the largest; what is read of them takes several times the memory

UINT32, BOOL, STRING, ARRAY = 4, 7, 8, 9
NUMBER_DTYPES: dict[int, np.dtype[Any]] = {
    0: np.dtype("u1"),
    1: np.dtype("i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    UINT32: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
LENGTH_BYTES = 8  # before every string
MIN_ARRAY_BYTES = 12  # of an array within an array: element type and length

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class ValueReader:
    """A position in a GGUF header that moves over one value at a time; every method raises ModelFileError."""

    def __init__(self, buffer: mmap.mmap, path: Path, position: int = 0) -> None:
        self._buffer = buffer
        self._size = min(len(buffer), MAX_HEADER_BYTES)
        self._path = path
        self.position = position

    def u32(self, what: str) -> int:
        return int(_U32.unpack_from(self._buffer, self._advance(4, what))[0])

    def u64(self, what: str) -> int:
        return int(_U64.unpack_from(self._buffer, self._advance(8, what))[0])

    def count(self, minimum_bytes: int, what: str) -> int:
        """A u64 count of things that take at least `minimum_bytes` each in the rest of the header."""
        count = self.u64(f"the number of {what}")
        checked_extent(self.position, count * minimum_bytes, self._size, f"the list of {count} {what}", self._path)
        return count

    def name(self, what: str) -> str:
        """A key or a tensor's name: short, valid UTF-8."""
        size = self.u64(f"the length of {what}")
        if size > MAX_NAME_BYTES:
            raise ModelFileError(f"{self._path} is broken: {what} claims {size} bytes; fetch the file again.")
        if size == 0:
            raise ModelFileError(f"{self._path} is broken: {what} is empty; fetch the file again.")
        start = self._advance(size, what)
        try:
            return str(self._buffer[start : self.position], "utf-8")
        except UnicodeDecodeError as error:
            raise ModelFileError(f"{self._path} is broken: {what} is not UTF-8; fetch the file again.") from error

    def value(self, type_id: int, key: str, depth: int = 0) -> MetadataValue:
        what = f"the value of {key!r}"
        if type_id == STRING:
            return self._strings(1, what)[0]
        if type_id == BOOL:
            return bool(self._booleans(1, what)[0])
        if type_id == ARRAY:
            return self._array(key, depth + 1)
        number: bool | int | float = self._numbers(type_id, 1, what)[0].item()
        return number

    def _array(self, key: str, depth: int) -> MetadataValue:
        what = f"the array {key!r}"
        if depth > MAX_ARRAY_DEPTH:
            raise ModelFileError(f"{self._path} is broken: {what} is nested deeper than {MAX_ARRAY_DEPTH} levels.")
        type_id = self.u32(f"the element type of {what}")
        if type_id == STRING:
            return self._strings(self.u64(f"the length of {what}"), what)
        if type_id == ARRAY:
            count = self.count(MIN_ARRAY_BYTES, f"arrays in {key!r}")
            return [self._array(key, depth + 1) for _ in range(count)]
        count = self.u64(f"the length of {what}")
        return self._booleans(count, what) if type_id == BOOL else self._numbers(type_id, count, what)

    def _numbers(self, type_id: int, count: int, what: str) -> NDArray[Any]:
        """[count], copied, so that no array keeps the mapping alive."""
        dtype = NUMBER_DTYPES.get(type_id)
        if dtype is None:
            raise ModelFileError(f"{self._path} is broken: {what} has the unknown type {type_id}.")
        start = self._advance(count * dtype.itemsize, what)
        return np.frombuffer(self._buffer[start : self.position], dtype=dtype)

    def _booleans(self, count: int, what: str) -> NDArray[np.bool_]:
        start = self._advance(count, what)
        bytes_ = np.frombuffer(self._buffer[start : self.position], dtype=np.uint8)
        if bytes_.size and bytes_.max() > 1:
            raise ModelFileError(f"{self._path} is broken: {what} holds a boolean that is neither 0 nor 1.")
        return bytes_.astype(np.bool_)

    def _strings(self, count: int, what: str) -> list[str]:
        """Bytes that are not UTF-8 become lone surrogates: `.encode("utf-8", "surrogateescape")` restores them.

        A vocabulary has up to half a million strings, so the loop holds what it needs in local names.
        """
        buffer, path, unpack = self._buffer, self._path, _U64.unpack_from
        strings = []
        end = self.position
        checked_extent(end, count * LENGTH_BYTES, self._size, what, path)
        # Each string must leave room for the lengths of those that follow, so one check covers both reads.
        first_room = self._size - (count - 1) * LENGTH_BYTES
        for room in range(first_room, self._size + 1, LENGTH_BYTES):
            start = end + LENGTH_BYTES
            end = start + unpack(buffer, end)[0]
            if end > room:
                checked_extent(start, end - start, room, what, path)  # raises
            strings.append(buffer[start:end].decode("utf-8", "surrogateescape"))
        self.position = end
        return strings

    def _advance(self, size: int, what: str) -> int:
        """Move over `size` bytes; return where they start."""
        start = self.position
        self.position = checked_extent(start, size, self._size, what, self._path)
        return start
