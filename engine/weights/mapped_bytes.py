"""A file of tensors in memory: read-only, its size checked when asked, its pages given back when asked."""

import mmap
import stat
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError, ModelNotFoundError


class MappedBytes:
    """Views of it keep the mapping alive; `close` lets go of it once they are gone."""

    def __init__(self, path: Path, suffix: str) -> None:
        """Raise ModelNotFoundError or ModelFileError; `suffix` is what a model's file ends in, for the messages."""
        self.path = path
        self.buffer = _map(path, suffix)

    def __len__(self) -> int:
        return len(self.buffer)

    def view(self, start: int, size: int) -> NDArray[np.uint8]:
        return np.frombuffer(self.buffer, dtype=np.uint8, count=size, offset=start)

    def release(self, start: int, size: int) -> None:
        """Give the memory of the pages that hold these bytes back; reading them again is slower, but still right."""
        if hasattr(mmap, "MADV_DONTNEED") and size > 0:
            first = start // mmap.PAGESIZE * mmap.PAGESIZE
            self.buffer.madvise(mmap.MADV_DONTNEED, first, start + size - first)

    def check_size(self) -> None:
        """Raise ModelFileError if the file was cut since it was opened: a page that is gone would end the process."""
        if self.buffer.size() < len(self.buffer):
            raise ModelFileError(f"{self.path} was cut short while it was in use; fetch it again and restart.")

    def close(self) -> None:
        # A mapping with views cannot be closed; the last view to go unmaps it.
        with suppress(BufferError):
            self.buffer.close()


def _map(path: Path, suffix: str) -> mmap.mmap:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise ModelFileError(f"{path} is a folder, not a model file; give the path of the {suffix} file in it.")
        if not stat.S_ISREG(status.st_mode):
            raise ModelFileError(f"{path} is not a regular file; give the path of a {suffix} file.")
        if status.st_size == 0:
            raise ModelFileError(f"{path} is empty; fetch the file again.")
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise ModelNotFoundError(f"There is no file {path}; check the path.") from error
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path, or a file emptied meanwhile
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelFileError(f"{path} cannot be read: {reason}; check the path and its permissions.") from error
