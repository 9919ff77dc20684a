"""Opens a GGUF file (versions 2 and 3, little endian) as a read-only mapping, with nothing in it taken on trust.

Layout: magic "GGUF", u32 version, u64 number of tensors, u64 number of key/value pairs; the pairs; the list of
tensors; then the tensors' bytes, from the next multiple of `general.alignment` on (the GGUF specification of ggml).
"""

import math
import mmap
import os
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError, ModelNotFoundError, UnsupportedModelError
from engine.weights.gguf_tensors import MIN_TENSOR_BYTES, TensorInfo, read_tensors
from engine.weights.gguf_values import MetadataValue, ValueReader
from engine.weights.metadata import Metadata
from engine.weights.split import missing_part

__all__ = ["GgufFile", "MetadataValue", "TensorInfo"]

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MIN_ALIGNMENT = 8  # the format asks for a multiple of 8
MAX_ALIGNMENT = 1 << 20
MIN_PAIR_BYTES = 13  # length of the key, type, and a value of one byte


class GgufFile:
    """One open model file. Views from `raw` keep the mapping alive; `close` lets go of it once they are gone."""

    def __init__(self, path: Path, mapping: mmap.mmap) -> None:
        """Read the header of an already mapped file; use `open` instead."""
        self.path = path
        self._mapping = mapping
        self.version = _read_version(mapping, path)
        reader = ValueReader(mapping, path, position=len(MAGIC) + 4)
        tensor_count = reader.count(MIN_TENSOR_BYTES, "tensors")
        self.metadata = _read_metadata(reader, path)
        _refuse_split(self.metadata, path)
        alignment = _alignment(self.metadata, path)
        self.tensors = read_tensors(reader, tensor_count, alignment, len(mapping), path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "GgufFile":
        """Raises ModelNotFoundError, ModelFileError or UnsupportedModelError, whatever the file holds."""
        path = Path(path)
        mapping = _map(path)
        try:
            return cls(path, mapping)
        except BaseException:
            mapping.close()
            raise

    @property
    def architecture(self) -> str:
        return Metadata(self.metadata, self.path).text("general.architecture")

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The tensor's bytes as they lie in the file: uint8 [rows, row_bytes], a read-only view of the mapping.

        A vector is one row; leading axes are flattened into rows.
        """
        tensor = self.tensors[name]
        rows = math.prod(tensor.shape[:-1])
        view = np.frombuffer(self._mapping, dtype=np.uint8, count=tensor.nbytes, offset=tensor.offset)
        return view.reshape(rows, tensor.nbytes // rows)

    def release(self, name: str, first_row: int, rows: int) -> None:
        """Give the memory of the pages of some rows back; reading them again is slower, but still right."""
        if not hasattr(mmap, "MADV_DONTNEED"):
            return
        tensor = self.tensors[name]
        row_bytes = tensor.nbytes // math.prod(tensor.shape[:-1])
        first = tensor.offset + first_row * row_bytes
        start = first // mmap.PAGESIZE * mmap.PAGESIZE
        self._mapping.madvise(mmap.MADV_DONTNEED, start, first + rows * row_bytes - start)

    def check_size(self) -> None:
        """Raise ModelFileError if the file was cut since it was opened: a page that is gone would end the process."""
        if self._mapping.size() < len(self._mapping):
            raise ModelFileError(f"{self.path} was cut short while it was in use; fetch it again and restart.")

    def close(self) -> None:
        # A mapping with views cannot be closed; the last view to go unmaps it.
        with suppress(BufferError):
            self._mapping.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _map(path: Path) -> mmap.mmap:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise ModelFileError(f"{path} is a folder, not a GGUF file; give the path of the .gguf file in it.")
        if not stat.S_ISREG(status.st_mode):
            raise ModelFileError(f"{path} is not a regular file; give the path of a .gguf file.")
        if status.st_size == 0:
            raise ModelFileError(f"{path} is empty; fetch the file again.")
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise ModelNotFoundError(f"There is no file {path}; check the path.") from error
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path, or a file emptied meanwhile
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelFileError(f"{path} cannot be read: {reason}; check the path and its permissions.") from error


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


def _refuse_split(metadata: dict[str, MetadataValue], path: Path) -> None:
    parts = Metadata(metadata, path).integer("split.count", 1)
    if parts > 1:
        missing = missing_part(path)
        raise UnsupportedModelError(
            f"{path} is one of {parts} parts of a split model{f', of which {missing} is missing' if missing else ''};"
            " merge all parts into one file with llama-gguf-split."
        )
