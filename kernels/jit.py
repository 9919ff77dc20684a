"""The decorators of all compiled code: one place for flags and for the on-disk cache.

No kernel is compiled with fastmath: LLVM may neither reorder nor contract a floating-point operation, so that a sum has
one order on every machine (law 3 of docs/determinism.md).
"""

import atexit
import ctypes
import fcntl
import functools
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
from numba import cfunc, njit, types

from kernels.cache_folder import private_folder

# Every op of a program: (address of the op record, thread index, number of threads).
KERNEL_SIGNATURE = types.void(types.uintp, types.int64, types.int64)


def _source_digest() -> str:
    """Hash every kernel source: Numba looks at a function's own file only, and not at the intrinsics that it calls."""
    digest = hashlib.sha256(f"{numba.__version__}".encode())
    for source in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:16]


def _prepare_cache() -> str:
    """Choose the folder of compiled kernels and drop those of older sources; a read-only home gets a temporary one."""
    try:
        base = private_folder("kernels")
        folder = base / _source_digest()
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.touch()
        _drop_old(base, keep=4)
    except OSError:
        temporary = tempfile.mkdtemp(prefix="octavo-kernels-")
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        return temporary
    return str(folder)


def _drop_old(base: Path, keep: int) -> None:
    """Keep the newest few folders: an editor of kernels makes a new one at each change."""
    folders = sorted((p for p in base.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in folders[keep:]:
        shutil.rmtree(old, ignore_errors=True)


numba.config.CACHE_DIR = _prepare_cache()


def nothing_is_compiled() -> bool:
    """Whether the cache on disk is empty."""
    return next(Path(numba.config.CACHE_DIR).rglob("*.nbi"), None) is None


@contextmanager
def compile_lock() -> Iterator[int]:
    """Be the only process that compiles into the cache: Numba numbers its files, and two would take one number.

    Yields the lock's file descriptor. The lock ends with the last process that has it, however that ends.
    """
    with (Path(numba.config.CACHE_DIR) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


# Flags of a cached, top-level function called from Python.
njit_kernel = functools.partial(njit, nogil=True, cache=True, error_model="numpy", boundscheck=False)
# Flags of a helper that is compiled into the kernels which call it.
njit_inline = functools.partial(njit, nogil=True, error_model="numpy", boundscheck=False)


def kernel(function: Callable[..., None], signature: Any = KERNEL_SIGNATURE) -> Any:
    """Compile `function` as a C function that a program can call by address; the result is cached on disk."""
    return cfunc(signature, nopython=True, cache=True, error_model="numpy", boundscheck=False)(function)


def address(compiled: Any) -> int:
    """Return the address of a function made by `kernel`."""
    return ctypes.cast(compiled.ctypes, ctypes.c_void_p).value or 0
