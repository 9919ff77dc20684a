"""Where Octavo keeps what it can make again: downloaded models and compiled kernels."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return `$OCTAVO_CACHE`, else `$XDG_CACHE_HOME/octavo`, else `~/.cache/octavo`; it may not exist yet."""
    if chosen := os.environ.get("OCTAVO_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "octavo"


def private_folder(path: Path) -> Path:
    """Create `path` for this user alone (mode 0700) where it is missing, and return it.

    Raises PermissionError where it exists but belongs to somebody else: compiled code must not come from strangers.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user; set OCTAVO_CACHE to a folder of your own")
    return path
