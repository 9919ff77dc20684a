"""The bytes of a file of tensors: its header and single rows by a read-only mapping, all else by reading.

What is read is an error where the file was cut or the disk fails; a page of the mapping would end the process. A
stretch of bytes is checked to lie inside its file before any of those bytes are read.
"""

import mmap
import os
import stat
from contextlib import suppress
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError, ModelNotFoundError


def checked_extent(start: int, size: int, limit: int, what: str, path: str | PathLike[str]) -> int:
    """Return `start + size`, or raise ModelFileError where that is not within `limit` bytes.

    All are Python integers, so a product of hostile counts cannot wrap around before it is compared.
    """
    end = start + size
    if size < 0 or start < 0 or end > limit:
        raise ModelFileError(
            f"{path} is truncated or broken: {what} needs {size} bytes at byte {start}, but only"
            f" {max(limit - start, 0)} are left; fetch the file again."
        )
    return end


class MappedBytes:
    """Views of it keep the mapping alive; `close` lets go of it once they are gone."""

    def __init__(self, path: Path, suffix: str) -> None:
        """Raise ModelNotFoundError or ModelFileError; `suffix` is what a model's file ends in, for the messages."""
        self.path = path
        self._descriptor = _open(path, suffix)
        try:
            self.buffer = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: a file emptied meanwhile
            os.close(self._descriptor)
            raise _unreadable(path, error) from error

    def __len__(self) -> int:
        return len(self.buffer)

    def view(self, start: int, size: int) -> NDArray[np.uint8]:
        """Bytes of the mapping, read when they are looked at."""
        return np.frombuffer(self.buffer, dtype=np.uint8, count=size, offset=start)

    def read_into(self, start: int, target: NDArray[np.uint8]) -> None:
        """Fill `target`, contiguous uint8, with the bytes from `start` on. Raises ModelFileError."""
        rest = target.data.cast("B")
        while rest:
            try:
                count = os.preadv(self._descriptor, [rest], start)
            except OSError as error:
                raise _unreadable(self.path, error) from error
            if count == 0:
                raise self._cut()
            rest, start = rest[count:], start + count

    def check_size(self) -> None:
        """Raise ModelFileError if the file was cut since it was opened: a page that is gone would end the process."""
        if self.buffer.size() < len(self.buffer):
            raise self._cut()

    def close(self) -> None:
        """Close the file; may be called again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        # A mapping with views cannot be closed; the last view to go unmaps it.
        with suppress(BufferError):
            self.buffer.close()

    def _cut(self) -> ModelFileError:
        return ModelFileError(f"{self.path} was cut short while it was in use; fetch it again and restart.")


def _open(path: Path, suffix: str) -> int:
    """A descriptor of a regular file that is not empty."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for its writer
    except FileNotFoundError as error:
        raise ModelNotFoundError(f"There is no file {path}; check the path.") from error
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise _unreadable(path, error) from error
    status = os.fstat(descriptor)
    reason = None
    if stat.S_ISDIR(status.st_mode):
        reason = f"is a folder, not a model file; give the path of the {suffix} file in it."
    elif not stat.S_ISREG(status.st_mode):
        reason = f"is not a regular file; give the path of a {suffix} file."
    elif status.st_size == 0:
        reason = "is empty; fetch the file again."
    if reason is not None:
        os.close(descriptor)
        raise ModelFileError(f"{path} {reason}")
    return descriptor


def _unreadable(path: Path, error: OSError | ValueError) -> ModelFileError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return ModelFileError(f"{path} cannot be read: {reason}; check the path and its permissions.")
