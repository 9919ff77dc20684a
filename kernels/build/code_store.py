"""The compiled kernels on disk: a file for each, in a folder of their own for each compiler, processor and source.

What is read from the store is run. So a store is opened once, checked, and used by its descriptor from then on: nobody
can put another folder in its place, and no link in it is followed.
"""

import atexit
import fcntl
import functools
import hashlib
import importlib.metadata
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernels.build.cache_folder import CacheFolderError, private_folder, temporary_private_folder
from kernels.build.machine_code import MachineCode
from kernels.machine.cpu import description

_FOLDERS_KEPT = 4
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class CodeStore:
    """One folder of compiled kernels."""

    def __init__(self, folder: Path, why_not_kept: str | None = None) -> None:
        """why_not_kept: one sentence if the folder goes with this process.

        Raises CacheFolderError where the folder is not ours alone, OSError where it cannot be opened.
        """
        self.folder, self.why_not_kept = folder, why_not_kept
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        status = os.fstat(self._descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
            os.close(self._descriptor)
            raise CacheFolderError(f"Other users could have put compiled kernels into {folder}; remove it.")

    def read(self, name: str) -> MachineCode | None:
        """Return the code of a kernel; None where there is none, or none that is whole and ours."""
        try:
            with os.fdopen(self._open(f"{name}.code", os.O_RDONLY), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                    return None
                return MachineCode.from_bytes(file.read())
        except (OSError, ValueError):
            return None

    def write(self, name: str, code: MachineCode) -> None:
        """Keep a kernel's code; whoever reads meanwhile finds all of it or nothing."""
        temporary = f"{os.urandom(8).hex()}.tmp"
        try:
            with os.fdopen(self._open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                file.write(code.to_bytes())
            os.replace(temporary, f"{name}.code", src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except OSError:  # no room: do not take what little there is
            self._remove(temporary)
            raise

    @contextmanager
    def compile_lock(self) -> Iterator[int]:
        """Be the only process that compiles many kernels, so that none is compiled twice.

        Yields the lock's file descriptor. The lock ends with the last process that has it, however that ends.
        """
        with os.fdopen(self._open("lock", os.O_RDWR | os.O_CREAT), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock.fileno()

    def _open(self, name: str, flags: int) -> int:
        # Non-blocking, for a name that is a pipe and no file.
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600, dir_fd=self._descriptor)

    def _remove(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._descriptor)
        except FileNotFoundError:
            pass


@functools.cache
def code_store() -> CodeStore:
    """The store of what is compiled here and now: our own folder in the cache folder, or a temporary one.

    Other folders there are dropped, except the newest few: each change of a kernel makes a new folder.
    """
    try:
        base = private_folder("kernels")
        ours = base / _digest()
        ours.mkdir(mode=0o700, exist_ok=True)
        ours.touch()
        store = CodeStore(ours)
        _drop_old(base)
    except OSError as error:
        temporary = temporary_private_folder("octavo-kernels-")
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        return CodeStore(temporary, why_not_kept=str(error))
    return store


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
