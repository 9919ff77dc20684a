"""Where Octavo keeps what it can make again: downloaded models and compiled kernels; private to this user."""

import os
import stat
from pathlib import Path


class CacheFolderError(OSError):
    """The cache folder cannot be used; the message says what to do."""


def cache_folder() -> Path:
    """`$OCTAVO_CACHE`, else `$XDG_CACHE_HOME/octavo`, else `~/.cache/octavo`; it need not exist yet."""
    if chosen := os.environ.get("OCTAVO_CACHE"):
        return Path(chosen).expanduser().absolute()
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if xdg.is_absolute():  # the XDG specification has relative values ignored
        return xdg / "octavo"
    try:
        return Path.home() / ".cache" / "octavo"
    except RuntimeError as error:
        raise CacheFolderError(
            "This user has no home folder; set OCTAVO_CACHE to a folder that you can write to."
        ) from error


def private_folder(name: str) -> Path:
    """The folder `name` in the cache folder: made if need be, ours, and closed to other users (mode 0700).

    What lies there is trusted later on (compiled code above all), so a folder of another owner is refused.
    """
    folder = cache_folder() / name
    try:
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        _close_to_others(folder)
    except CacheFolderError:
        raise
    except OSError as error:
        raise CacheFolderError(
            f"The cache folder {folder} cannot be made: {error.strerror};"
            " set OCTAVO_CACHE to a folder that you can write to."
        ) from error
    return folder


def _close_to_others(folder: Path) -> None:
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise CacheFolderError(
            f"The cache folder {folder} belongs to another user; set OCTAVO_CACHE to a folder of your own."
        )
    if stat.S_IMODE(status.st_mode) & 0o077:
        folder.chmod(0o700)
