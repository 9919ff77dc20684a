"""Where Octavo keeps what it can make again: downloaded models and compiled kernels.

The cache folder may be shared, as a volume that several containers mount: then models are shared as well. Compiled code
is run, so its folder has to be ours, and nobody else may be able to put another in its place.
"""

import os
import stat
import tempfile
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class CacheFolderError(OSError):
    """The cache folder cannot be used; the message says what to do."""


def cache_folder() -> Path:
    """`$OCTAVO_CACHE`, else `$XDG_CACHE_HOME/octavo`, else `~/.cache/octavo`; it need not exist yet."""
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        if chosen := os.environ.get("OCTAVO_CACHE"):
            return Path(chosen).expanduser().absolute()
        if xdg.is_absolute():  # the XDG specification has relative values ignored
            return xdg / "octavo"
        return Path.home().absolute() / ".cache" / "octavo"
    except RuntimeError as error:  # there is no $HOME, and the system does not know the user
        raise CacheFolderError(
            "This user has no home folder; set OCTAVO_CACHE to a folder that you can write to."
        ) from error


def shared_folder(name: str) -> Path:
    """The folder `name` in the cache folder, made if need be, with the cache folder's permissions.

    Except that not everybody may write there. Raises CacheFolderError.
    """
    folder = cache_folder() / name
    try:
        _make_cache_folder(folder.parent)
        try:
            folder.mkdir()
        except FileExistsError:  # also where another process has just made it
            if not folder.is_dir():
                raise
        else:
            folder.chmod(stat.S_IMODE(folder.parent.stat().st_mode) & ~stat.S_IWOTH | stat.S_IRWXU)
    except OSError as error:
        raise _cannot_be_made(folder, error) from error
    return folder


def private_folder(name: str) -> Path:
    """A folder in the cache folder for files that we trust later on: made if need be, ours, of mode 0700.

    The folder is `name`, or `name-<our user's number>` where `name` belongs to another user. Raises CacheFolderError
    where others could put something there, or another folder in its place.
    """
    folder = cache_folder() / name
    try:
        _make_cache_folder(folder.parent)
        _check_way(folder)
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _is_ours(folder):
            folder = folder.with_name(f"{name}-{os.geteuid()}")
            folder.mkdir(mode=0o700, exist_ok=True)
        return _closed(folder)
    except CacheFolderError:
        raise
    except OSError as error:
        raise _cannot_be_made(folder, error) from error


def temporary_private_folder(prefix: str) -> Path:
    """A new folder of ours alone, outside the cache folder. Raises CacheFolderError where there can be none."""
    for place in (None, "/dev/shm"):  # None: where $TMPDIR says, or where the system has such folders
        try:
            place = place or tempfile.gettempdir()
            _check_way(Path(place, prefix))
            return _closed(Path(tempfile.mkdtemp(prefix=prefix, dir=place)))
        except OSError:
            continue
    raise CacheFolderError(
        "There is no folder for compiled kernels that only this user can write to;"
        " set OCTAVO_CACHE to a folder of your own, or mount one at /tmp."
    )


def _make_cache_folder(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def _check_way(folder: Path) -> None:
    """Raise CacheFolderError if others could put another folder in the place of this folder of ours.

    Whoever can write to a folder can swap what lies in it, unless the folder is sticky: then only the owner of either
    can (man 7 inode). So every folder from the root on must be root's or ours, and sticky if others may write to it.
    """
    parent = Path(os.path.realpath(folder.parent))
    for above in (parent, *parent.parents):
        status = above.lstat()
        is_open = status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX
        if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (0, os.geteuid()) or is_open:
            raise CacheFolderError(
                f"Other users could put something in the place of the cache folder {folder}, since they can write to"
                f" {above}; set OCTAVO_CACHE to a folder of your own."
            )


def _is_ours(folder: Path) -> bool:
    """Whether a name in the cache folder is ours; another user's link is not, even where it leads to a folder of ours."""
    return folder.lstat().st_uid == os.geteuid()


def _closed(folder: Path) -> Path:
    """The folder without links on the way to it, closed to others. Raises CacheFolderError where it was theirs."""
    real = Path(os.path.realpath(folder))
    _check_way(real)
    status = real.lstat()
    if not stat.S_ISDIR(status.st_mode) or not _is_ours(folder) or not _is_ours(real):
        raise CacheFolderError(
            f"The cache folder {folder} belongs to another user; set OCTAVO_CACHE to a folder of your own."
        )
    if status.st_mode & _OTHERS_WRITE:
        raise CacheFolderError(f"Other users could write to the cache folder {folder}; remove it.")
    if stat.S_IMODE(status.st_mode) & 0o077:
        real.chmod(0o700)
    return real


def _cannot_be_made(folder: Path, error: OSError) -> CacheFolderError:
    return CacheFolderError(
        f"The cache folder {folder} cannot be made: {error.strerror};"
        " set OCTAVO_CACHE to a folder that you can write to."
    )
