"""Machine code in the form in which it is kept, and its way into memory; x86-64 Linux only.

What is kept is linked already (by compiler.py): an image that may lie at any page. Some of its words are to become
addresses, of places in the image or of functions of the C library. After a header with a hash of the whole:

    uint64   the entry: where the function begins in the image
    uint64   bytes of the image, words in it that hold a place in it, words that hold a function's address
    image
    int64    where the former words are
    int64    where the latter words are
    names    of those functions, each ended by a zero byte
"""

import ctypes
import functools
import hashlib
import platform
import struct
import sys
from dataclasses import dataclass

CAN_LOAD = sys.platform == "linux" and platform.machine() == "x86_64"

_MAGIC = b"octavo 1"
_HASH_BYTES = 32
_SIZES = struct.Struct("<4Q")
_READ, _WRITE, _EXECUTE = 1, 2, 4  # PROT_ constants, asm-generic/mman-common.h
_PRIVATE, _ANONYMOUS = 0x02, 0x20  # MAP_ constants
_FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True, slots=True)
class MachineCode:
    """The code of one function, laid out."""

    image: bytes
    entry: int  # where the function begins in the image
    places: tuple[int, ...]  # words of 8 bytes that hold a place in the image
    imports: tuple[tuple[int, str], ...]  # words of 8 bytes that are to hold the address of a C function

    def to_bytes(self) -> bytes:
        """As it is kept."""
        sizes = _SIZES.pack(self.entry, len(self.image), len(self.places), len(self.imports))
        offsets = [*self.places, *(offset for offset, _ in self.imports)]
        names = b"".join(name.encode() + b"\0" for _, name in self.imports)
        content = sizes + self.image + struct.pack(f"<{len(offsets)}q", *offsets) + names
        return _MAGIC + hashlib.sha256(content).digest() + content

    @classmethod
    def from_bytes(cls, kept: bytes) -> "MachineCode":
        """Read what was kept; ValueError where it is not whole, or of another version."""
        begin = len(_MAGIC) + _HASH_BYTES
        content = kept[begin:]
        if kept[:begin] != _MAGIC + hashlib.sha256(content).digest():
            raise ValueError("the file is not what was written")
        entry, image_bytes, places, imports = _SIZES.unpack_from(content)
        end = _SIZES.size + image_bytes
        offsets = struct.unpack_from(f"<{places + imports}q", content, end)
        names = content[end + 8 * len(offsets) :].decode().split("\0")[:-1]
        return cls(
            image=content[_SIZES.size : end],
            entry=entry,
            places=offsets[:places],
            imports=tuple(zip(offsets[places:], names, strict=True)),
        )

    def load(self) -> int:
        """Bring the code into memory; returns the function's address.

        The code stays as long as the process: threads sleep in it until the process ends.
        """
        assert CAN_LOAD
        libc = _libc()
        address = libc.mmap(None, len(self.image), _READ | _WRITE, _PRIVATE | _ANONYMOUS, -1, 0)
        if address == _FAILED:
            raise MemoryError(f"no memory for {len(self.image)} bytes of machine code")
        ctypes.memmove(address, self.image, len(self.image))
        for offset in self.places:
            word = ctypes.c_uint64.from_address(address + offset)
            word.value += address
        for offset, name in self.imports:
            function = ctypes.cast(getattr(libc, name), ctypes.c_void_p).value
            ctypes.c_uint64.from_address(address + offset).value = function or 0
        if libc.mprotect(address, len(self.image), _READ | _EXECUTE) != 0:
            raise OSError(ctypes.get_errno(), "the system does not let machine code be run")
        return int(address + self.entry)


@functools.cache
def _libc() -> ctypes.CDLL:
    """The C library's functions, those of mathematics among them."""
    libc = ctypes.CDLL(None, use_errno=True)
    size, number = ctypes.c_size_t, ctypes.c_int
    libc.mmap.argtypes = [ctypes.c_void_p, size, number, number, number, ctypes.c_long]
    libc.mmap.restype = ctypes.c_void_p
    libc.mprotect.argtypes = [ctypes.c_void_p, size, number]
    return libc
