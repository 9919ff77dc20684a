"""The cache folder as the engine sees it: trouble with it is an error that a user may read."""

from pathlib import Path

from engine.errors import OctavoError
from kernels.build import cache_folder as folders


def cache_folder() -> Path:
    """`$OCTAVO_CACHE`, else `$XDG_CACHE_HOME/octavo`, else `~/.cache/octavo`; it need not exist yet."""
    try:
        return folders.cache_folder()
    except folders.CacheFolderError as error:
        raise OctavoError(str(error)) from error


def shared_folder(name: str) -> Path:
    """The folder `name` in the cache folder: made if need be, open to those the cache folder is open to."""
    try:
        return folders.shared_folder(name)
    except folders.CacheFolderError as error:
        raise OctavoError(str(error)) from error
