"""Large anonymous memory: in huge pages, which save the weights' address translations, or in small ones on request."""

import contextlib
import ctypes
import mmap

import numpy as np
import numpy.typing as npt

_HUGE_PAGE = 2 << 20
_CHUNK = 64 << 20
_ALIGNMENT = 64  # a cache line, and the widest vector
_NOTHING = ctypes.c_char * 0


def zeroed(shape: tuple[int, ...], dtype: npt.DTypeLike, *, huge_pages: bool = True) -> np.ndarray:
    """Return a zeroed array in memory of its own; pages that nobody touches cost nothing.

    The first touch of a huge page zeroes 2 MiB of it, at once: memory that grows while answers run takes small pages.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return _map(size, huge_pages).view(dtype).reshape(shape)


def address_of(array: np.ndarray) -> int:
    """The address of an array whose elements stand side by side; array.ctypes takes 1.5 us, too long for each step."""
    try:
        return ctypes.addressof(_NOTHING.from_buffer(array))  # type: ignore[arg-type]
    except TypeError:  # a read-only array
        assert array.flags.c_contiguous
        return int(array.ctypes.data)


class Arena:
    """Hands out pieces of large mappings, so that small matrices share huge pages and lie in the order of their use."""

    def __init__(self) -> None:
        self._chunk = np.zeros(0, np.uint8)
        self._used = 0
        self._full: list[np.ndarray] = []  # the used parts of the mappings before

    def zeroed(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return zeroed uint8 memory, aligned to a cache line; it lives as long as the array."""
        size = int(np.prod(shape))
        if self._used + size > len(self._chunk):
            self._full = self.used
            self._chunk, self._used = _map(max(size, _CHUNK), huge_pages=True), 0
        piece = self._chunk[self._used : self._used + size]
        self._used += -(-size // _ALIGNMENT) * _ALIGNMENT
        return piece.reshape(shape)

    @property
    def used(self) -> list[np.ndarray]:
        """All that was handed out, and the gaps between: uint8, one array a mapping."""
        return [part for part in (*self._full, self._chunk[: self._used]) if part.size]


def _map(size: int, huge_pages: bool) -> np.ndarray:
    """Map `size` zeroed bytes that start where a huge page would."""
    # Private, not shared as by default: most systems give huge pages to private memory only.
    mapping = mmap.mmap(-1, size + _HUGE_PAGE, access=mmap.ACCESS_COPY)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system without huge pages: slower, but right
            mapping.madvise(mmap.MADV_HUGEPAGE if huge_pages else mmap.MADV_NOHUGEPAGE)
    memory = np.frombuffer(mapping, np.uint8)
    start = -memory.ctypes.data % _HUGE_PAGE
    return memory[start : start + size]
