"""From an object file, as LLVM makes it, to machine code that can be loaded: sections laid out, relocations applied.

Code for the large code model, which Numba has LLVM make, reaches its constants and the C library by addresses of 64
bits, so there is one kind of relocation. Sources: System V Application Binary Interface, chapter 4 (Object Files:
sections, symbol table, relocation); its AMD64 Architecture Processor Supplement, section 4.4 (Relocation), whose names
are used here: S is a symbol's value, A the addend.
"""

import struct
from dataclasses import dataclass

from kernels.build.machine_code import MachineCode

_SECTION = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, link, info, alignment, entry size
_SYMBOL = struct.Struct("<IBBHQQ")  # name, info, other, section, value, size
_RELOCATION = struct.Struct("<QQq")  # offset, symbol << 32 | type, addend
_SECTIONS_AT, _SECTION_COUNT_AT = 0x28, 0x3C
_IDENTITY = b"\x7fELF\x02\x01\x01"  # of 64 bits, little-endian, version 1
_RELOCATABLE, _X86_64 = 1, 62  # ET_REL, EM_X86_64
_SYMBOLS, _RELOCATIONS, _EMPTY = 2, 4, 8  # SHT_SYMTAB, SHT_RELA, SHT_NOBITS
_WRITABLE, _ALLOCATED = 1, 2  # SHF_WRITE, SHF_ALLOC
_UNDEFINED = 0  # SHN_UNDEF
_R_64 = 1  # R_X86_64_64: a word of 64 bits gets S + A


class ObjectFileError(Exception):
    """The object file has what this linker does not know."""


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    type: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int

    @property
    def is_loaded(self) -> bool:
        """Frames for the unwinding of exceptions are left out: nothing throws."""
        return bool(self.flags & _ALLOCATED) and self.size > 0 and self.name != ".eh_frame"


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    section: int
    value: int


def link(data: bytes, entry: str) -> MachineCode:
    """Lay out the object file whose function `entry` is wanted; raises ObjectFileError."""
    return _Linker(data).link(entry)


class _Linker:
    """One object file on its way to an image."""

    def __init__(self, data: bytes) -> None:
        if data[: len(_IDENTITY)] != _IDENTITY or struct.unpack_from("<HH", data, 16) != (_RELOCATABLE, _X86_64):
            raise ObjectFileError("this is no relocatable object file of x86-64")
        self._data = data
        self._sections = self._read_sections()
        self._symbols = self._read_symbols()
        self._image = bytearray()
        self._starts: dict[int, int] = {}  # where a section begins in the image, by its number
        self._places: list[int] = []
        self._imports: list[tuple[int, str]] = []

    def link(self, entry: str) -> MachineCode:
        self._lay_out()
        for section in self._sections:
            if section.type == _RELOCATIONS and section.info in self._starts:
                for at in range(section.offset, section.offset + section.size, _RELOCATION.size):
                    offset, info, addend = _RELOCATION.unpack_from(self._data, at)
                    place = self._starts[section.info] + offset
                    self._relocate(place, info & 0xFFFFFFFF, self._symbols[info >> 32], addend)
        begin = self._place_of(next(symbol for symbol in self._symbols if symbol.name == entry))
        return MachineCode(bytes(self._image), begin, tuple(self._places), tuple(self._imports))

    def _read_sections(self) -> list[_Section]:
        (start,) = struct.unpack_from("<Q", self._data, _SECTIONS_AT)
        count, names = struct.unpack_from("<HH", self._data, _SECTION_COUNT_AT)
        headers = [_SECTION.unpack_from(self._data, start + index * _SECTION.size) for index in range(count)]
        return [
            _Section(self._text(headers[names][4] + name), kind, flags, offset, size, linked, info, alignment)
            for name, kind, flags, _, offset, size, linked, info, alignment, _ in headers
        ]

    def _read_symbols(self) -> list[_Symbol]:
        table = next(section for section in self._sections if section.type == _SYMBOLS)
        names = self._sections[table.link].offset
        found = []
        for at in range(table.offset, table.offset + table.size, _SYMBOL.size):
            name, _, _, section, value, _ = _SYMBOL.unpack_from(self._data, at)
            found.append(_Symbol(self._text(names + name), section, value))
        return found

    def _text(self, at: int) -> str:
        return self._data[at : self._data.index(b"\0", at)].decode()

    def _lay_out(self) -> None:
        for number, section in enumerate(self._sections):
            if not section.is_loaded:
                continue
            if section.flags & _WRITABLE or section.type == _EMPTY:
                raise ObjectFileError(f"section {section.name} is to be written to")
            self._image += bytes(-len(self._image) % max(section.alignment, 1))
            self._starts[number] = len(self._image)
            self._image += self._data[section.offset : section.offset + section.size]

    def _relocate(self, place: int, kind: int, symbol: _Symbol, addend: int) -> None:
        if kind != _R_64:
            raise ObjectFileError(f"a relocation of type {kind}, of {symbol.name!r}, is not known")
        if symbol.section == _UNDEFINED and addend == 0:
            self._imports.append((place, symbol.name))
        else:
            self._places.append(place)
            struct.pack_into("<Q", self._image, place, self._place_of(symbol) + addend)

    def _place_of(self, symbol: _Symbol) -> int:
        """Where a symbol of this file is in the image."""
        if symbol.section not in self._starts:
            raise ObjectFileError(f"{symbol.name!r} is not defined")
        return self._starts[symbol.section] + symbol.value
