"""Opens a GGUF file (versions 2 and 3, little endian) as a read-only mapping, with nothing in it taken on trust.

Layout: magic "GGUF", u32 version, u64 number of tensors, u64 number of key/value pairs; the pairs; the list of
tensors; then the tensors' bytes, from the next multiple of `general.alignment` on (the GGUF specification of ggml).
"""

import math
import mmap
import os
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError, UnsupportedModelError
from engine.weights.files.gguf_tensors import MIN_TENSOR_BYTES, read_tensors
from engine.weights.files.gguf_values import MetadataValue, ValueReader
from engine.weights.files.mapped_bytes import MappedBytes
from engine.weights.files.metadata import Metadata
from engine.weights.files.weights_file import TensorInfo

__all__ = ["GgufFile", "MetadataValue", "TensorInfo"]

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MIN_ALIGNMENT = 8  # the format asks for a multiple of 8
MAX_ALIGNMENT = 1 << 20
MIN_PAIR_BYTES = 13  # length of the key, type, and a value of one byte


class GgufFile:
    """One open model file. Views from `raw` keep the mapping alive; `close` lets go of it once they are gone."""

    def __init__(self, mapped: MappedBytes) -> None:
        """Read the header of an already mapped file; use `open` instead."""
        path, mapping = mapped.path, mapped.buffer
        self.path = path
        self._mapped = mapped
        self.version = _read_version(mapping, path)
        reader = ValueReader(mapping, path, position=len(MAGIC) + 4)
        tensor_count = reader.count(MIN_TENSOR_BYTES, "tensors")
        self.metadata = _read_metadata(reader, path)
        alignment = _alignment(self.metadata, path)
        self.tensors = read_tensors(reader, tensor_count, alignment, len(mapping), path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "GgufFile":
        """Raises ModelNotFoundError, ModelFileError or UnsupportedModelError, whatever the file holds."""
        mapped = MappedBytes(Path(path), ".gguf")
        try:
            return cls(mapped)
        except BaseException:
            mapped.close()
            raise

    @property
    def architecture(self) -> str:
        return Metadata(self.metadata, self.path).text("general.architecture")

    @property
    def nbytes(self) -> int:
        return len(self._mapped)

    def path_of(self, name: str) -> Path:
        return self.path

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The tensor's bytes as they lie in the file: uint8 [rows, row_bytes], a read-only view of the mapping.

        A vector is one row; leading axes are flattened into rows.
        """
        tensor = self.tensors[name]
        rows = math.prod(tensor.shape[:-1])
        return self._mapped.view(tensor.offset, tensor.nbytes).reshape(rows, tensor.nbytes // rows)

    def rows(self, name: str, first: int, count: int) -> NDArray[np.uint8]:
        """Some rows of what `raw` gives, read from the file: uint8 [count, row_bytes]."""
        tensor = self.tensors[name]
        row_bytes = tensor.nbytes // math.prod(tensor.shape[:-1])
        rows = np.empty((count, row_bytes), np.uint8)
        self._mapped.read_into(tensor.offset + first * row_bytes, rows)
        return rows

    def check_size(self) -> None:
        """Raise ModelFileError if the file was cut since it was opened: a page that is gone would end the process."""
        self._mapped.check_size()

    def close(self) -> None:
        self._mapped.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()


def _read_version(mapping: mmap.mmap, path: Path) -> int:
    if mapping[: len(MAGIC)] != MAGIC:
        raise ModelFileError(
            f"{path} is not a GGUF file: it begins with {mapping[: len(MAGIC)]!r}, not {MAGIC!r};"
            " give the path of a GGUF model."
        )
    version = ValueReader(mapping, path, position=len(MAGIC)).u32("the version")
    if version in VERSIONS:
        return version
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if swapped in VERSIONS:
        raise UnsupportedModelError(f"{path} is a big-endian GGUF file; convert it to little endian.")
    raise UnsupportedModelError(
        f"{path} is of GGUF version {version}; this version reads 2 and 3, so convert the file to one of these."
    )


def _read_metadata(reader: ValueReader, path: Path) -> dict[str, MetadataValue]:
    metadata: dict[str, MetadataValue] = {}
    for _ in range(reader.count(MIN_PAIR_BYTES, "metadata pairs")):
        key = reader.name("a metadata key")
        if key in metadata:
            raise ModelFileError(f"{path} is broken: it has the metadata key {key!r} twice.")
        metadata[key] = reader.value(reader.u32(f"the type of {key!r}"), key)
    return metadata


def _alignment(metadata: dict[str, MetadataValue], path: Path) -> int:
    """Bytes; every tensor starts at a multiple of it."""
    alignment = Metadata(metadata, path).integer("general.alignment", DEFAULT_ALIGNMENT)
    if not MIN_ALIGNMENT <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise ModelFileError(
            f"{path} is broken: general.alignment is {alignment}, not a power of two"
            f" from {MIN_ALIGNMENT} to {MAX_ALIGNMENT}."
        )
    return alignment
