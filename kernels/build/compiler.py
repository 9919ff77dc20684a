"""From a kernel's Python function to machine code that can be kept: compiled by Numba's LLVM, then linked here.

Only a process that compiles imports this module. No kernel is compiled with fastmath: LLVM may neither reorder nor
contract a floating-point operation, so that a sum has one order on every machine (law 3 of docs/determinism.md).

Why not Numba's own `cache=True`: its files can be read by Numba alone, so every server would load Numba and LLVM, which
takes a third of a second and some 65 MiB, and would link at each start; and they are pickles, which run what they say
when they are read. The price is that names are used here which Numba does not promise to keep: `compile_extra` and the
call convention of `compile_library`, `_get_compiled_object` of its libraries, the names of its runtime. They stand in
this file and nowhere else. pyproject.toml admits one minor version of Numba, and the tests of this module fail where
one of the names is gone.

Linking: sections of the object file are laid out, relocations applied. Code for the large code model, which Numba has
LLVM make, reaches its constants and the C library by addresses of 64 bits, so there is one kind of relocation. Sources:
System V Application Binary Interface, chapter 4 (Object Files: sections, symbol table, relocation); its AMD64
Architecture Processor Supplement, section 4.4 (Relocation), whose names are used here: S is a symbol's value, A the
addend.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from llvmlite import ir
from numba.core import compiler, registry, sigutils, types
from numba.core.compiler_lock import global_compiler_lock

from kernels.build.machine_code import MachineCode
from kernels.build.toolchain import FLAGS

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
    """The object file holds something that this linker does not know."""


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
        """Whether the section goes into the image; frames for unwinding do not, since nothing throws."""
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


_OF_PYTHON = ("NRT_", "Py", "_Py", "numba")  # how names of Numba's runtime and of Python's begin


@global_compiler_lock
def compile_library(function: Callable[..., Any], signature: str) -> tuple[Any, str]:
    """Compile a function; returns Numba's library of it, and the name of the C function that it holds.

    Numba's own function returns a status, and its result through a pointer. A kernel raises nothing, so the C function
    around it drops the status and returns the result.
    """
    arguments, result = sigutils.normalize_signature(signature)
    target = registry.cpu_target
    flags = compiler.Flags()
    target.options.parse_as_flags(flags, {"nopython": True, **FLAGS})
    flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
    typing, context = target.typing_context, target.target_context
    compiled = compiler.compile_extra(typing, context, function, arguments, result, flags, {})
    library, description = attrgetter("library", "fndesc")(compiled)
    module = context.create_module("c_function")
    native_type = context.call_conv.get_function_type(result, arguments)
    native = ir.Function(module, native_type, description.llvm_func_name)
    returned = ir.VoidType() if result == types.none else context.get_value_type(result)
    c_type = ir.FunctionType(returned, [context.get_value_type(argument) for argument in arguments])
    c_function = ir.Function(module, c_type, description.llvm_cfunc_wrapper_name)
    builder = ir.IRBuilder(c_function.append_basic_block("entry"))
    _, value = context.call_conv.call_function(builder, native, result, arguments, c_function.args)
    builder.ret_void() if result == types.none else builder.ret(value)
    # Stands for Numba's destructor of arrays; never called, since the arrays of kernels are views.
    free = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType()]), "NRT_MemInfo_call_dtor")
    free.linkage = "weak_odr"
    ir.IRBuilder(free.append_basic_block("entry")).ret_void()
    library.add_ir_module(module)
    library.finalize()
    return library, c_function.name


def compile_code(function: Callable[..., Any], signature: str) -> MachineCode:
    """Compile a function to code that can be kept; raises ObjectFileError."""
    library, name = compile_library(function, signature)
    code = link(library._get_compiled_object(), name)
    for _, called in code.imports:
        if called.startswith(_OF_PYTHON):
            raise ObjectFileError(f"{function.__qualname__} calls {called}: a kernel allocates and raises nothing")
    return code


def compile_in_place(function: Callable[..., Any], signature: str) -> int:
    """Compile a function and have llvmlite load it; returns its address."""
    library, name = compile_library(function, signature)
    return int(library.get_pointer_to_function(name))
