"""The one check that a stretch of bytes lies inside its file, made before any of those bytes are read."""

from os import PathLike

from engine.errors import ModelFileError


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
