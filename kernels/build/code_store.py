"""The compiled kernels on disk: a file for each, in a folder of their own for each compiler, processor and source."""

import atexit
import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernels.build.cache_folder import private_folder, temporary_private_folder
from kernels.machine.cpu import description
from kernels.build.machine_code import MachineCode

_FOLDERS_KEPT = 4


_chosen: list[Path] = []  # the folder, once it is chosen
_troubles: list[str] = []  # why it is not in the cache folder, if it is not


def folder() -> Path:
    """The folder of what is compiled here and now."""
    if not _chosen:
        use(_choose())
    return _chosen[0]


def why_not_kept() -> str | None:
    """One sentence if what is compiled goes with this process; None if it is kept."""
    folder()
    return _troubles[0] if _troubles else None


def use(chosen: Path) -> None:
    """Take a folder that another process has chosen."""
    _chosen[:] = [chosen]


def _choose() -> Path:
    """Our own folder in the cache folder; a temporary one where that cannot be used.

    Other folders there are dropped, but for the newest few: an editor of kernels makes a new one at each change.
    """
    try:
        base = private_folder("kernels")
        ours = base / _digest()
        ours.mkdir(mode=0o700, exist_ok=True)
        ours.touch()
        _drop_old(base)
    except OSError as error:
        temporary = temporary_private_folder("octavo-kernels-")
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        _troubles[:] = [str(error)]
        return temporary
    return ours


def read(name: str) -> MachineCode | None:
    """Return the code of a kernel; None where there is none, or none that is whole."""
    try:
        return MachineCode.from_bytes(_path(name).read_bytes())
    except (OSError, ValueError):
        return None


def write(name: str, code: MachineCode) -> None:
    """Keep a kernel's code; whoever reads meanwhile finds all of it or nothing."""
    handle, temporary = tempfile.mkstemp(dir=folder())
    try:
        with open(handle, "wb") as file:
            file.write(code.to_bytes())
        os.replace(temporary, _path(name))
    except OSError:  # no room: do not take what little there is
        os.unlink(temporary)
        raise


@contextmanager
def compile_lock() -> Iterator[int]:
    """Be the only process that compiles many kernels, so that none is compiled twice.

    Yields the lock's file descriptor. The lock ends with the last process that has it, however that ends.
    """
    with (folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def _path(name: str) -> Path:
    return folder() / f"{name}.code"


def _digest() -> str:
    """Hash all that the code depends on: sources, compilers, and the processor, whose instructions they choose from."""
    versions = [f"{package} {importlib.metadata.version(package)}" for package in ("llvmlite", "numba", "numpy")]
    settings = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("NUMBA_")]
    parts = [sys.version, *versions, *settings, description()]
    digest = hashlib.sha256("\n".join(parts).encode())
    for source in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:16]


def _drop_old(base: Path) -> None:
    folders = sorted((p for p in base.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in folders[_FOLDERS_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
