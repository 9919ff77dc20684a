"""The cache folder as the engine sees it: trouble with it is an error that a user may read."""

from pathlib import Path

from engine.errors import OctavoError
from kernels import cache_folder as folders


def cache_folder() -> Path:
    """`$OCTAVO_CACHE`, else `$XDG_CACHE_HOME/octavo`, else `~/.cache/octavo`; it need not exist yet."""
    try:
        return folders.cache_folder()
    except folders.CacheFolderError as error:
        raise OctavoError(str(error)) from error


def private_folder(name: str) -> Path:
    """The folder `name` in the cache folder: made if need be, ours, and closed to other users (mode 0700)."""
    try:
        return folders.private_folder(name)
    except folders.CacheFolderError as error:
        raise OctavoError(str(error)) from error
