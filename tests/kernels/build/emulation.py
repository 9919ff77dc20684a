"""Instructions that this processor may not have, emulated: in LLVM IR for vectors, in Python for matrix tiles.

The meaning of each is that of the Intel 64 and IA-32 Architectures Software Developer's Manual.
"""

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

_ADDRESS, _BYTE, _LONG = ctypes.c_void_p, ctypes.c_uint8, ctypes.c_int64


class EmulatedTile:
    """A tile function's IR, compiled for this processor with its special instructions replaced."""

    def __init__(self, folder: Path, name: str) -> None:
        source = (folder / f"{name}.ll").read_text()
        entry = re.search(r"@(cfunc\.\w+)\(", source)
        assert entry
        self.engine = compile_here(emulated(source))
        self.address = self.engine.get_function_address(entry.group(1))


def emulated(source: str) -> str:
    """Replace the special instructions of a module."""
    added = ""
    for instruction, definition in VECTOR_INSTRUCTIONS.items():
        declaration = re.search(rf"^declare .*@{re.escape(instruction)}\(.*$", source, re.MULTILINE)
        if declaration:
            source = source.replace(declaration.group(), "").replace(f"@{instruction}(", f"@{_name(instruction)}(")
            added += definition
    for name, callback in _CALLBACKS.items():
        address = ctypes.cast(callback, ctypes.c_void_p).value
        source = re.sub(rf"^declare .*@llvm\.x86\.{name}\(.*$", "", source, flags=re.MULTILINE)
        source = source.replace(f"@llvm.x86.{name}(", f"inttoptr (i64 {address} to ptr)(")
    return source + added


def compile_here(source: str) -> llvm.ExecutionEngine:
    module = llvm.parse_assembly(source)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=1, jit=True
    )
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


def _name(instruction: str) -> str:
    return "emulated_" + instruction.replace(".", "_")


def _indices(numbers: range) -> str:
    return f"<{len(numbers)} x i32> <{', '.join(f'i32 {i}' for i in numbers)}>"


def _vpdpbusd(instruction: str, rows: int) -> str:
    """To each int32 add four products of unsigned and signed bytes, without saturation."""
    bytes_, wide, sums = f"<{4 * rows} x i8>", f"<{4 * rows} x i32>", f"<{rows} x i32>"
    shuffles = "\n".join(
        f"  %p{i} = shufflevector {wide} %products, {wide} poison, {_indices(range(i, 4 * rows, 4))}" for i in range(4)
    )
    return f"""
define {sums} @{_name(instruction)}({sums} %sums, {bytes_} %unsigned, {bytes_} %signed) {{
  %wide_unsigned = zext {bytes_} %unsigned to {wide}
  %wide_signed = sext {bytes_} %signed to {wide}
  %products = mul {wide} %wide_unsigned, %wide_signed
{shuffles}
  %one = add {sums} %sums, %p0
  %two = add {sums} %one, %p1
  %three = add {sums} %two, %p2
  %four = add {sums} %three, %p3
  ret {sums} %four
}}
"""


def _vpmaddwd(instruction: str) -> str:
    """The sums of two products of int16."""
    shuffles = "\n".join(
        f"  %p{i} = shufflevector <32 x i32> %products, <32 x i32> poison, {_indices(range(i, 32, 2))}"
        for i in range(2)
    )
    return f"""
define <16 x i32> @{_name(instruction)}(<32 x i16> %a, <32 x i16> %b) {{
  %wide_a = sext <32 x i16> %a to <32 x i32>
  %wide_b = sext <32 x i16> %b to <32 x i32>
  %products = mul <32 x i32> %wide_a, %wide_b
{shuffles}
  %sum = add <16 x i32> %p0, %p1
  ret <16 x i32> %sum
}}
"""


def _vpshufb(instruction: str) -> str:
    """Bytes of each 128-bit lane chosen by indices below 16."""
    steps = "\n".join(
        f"""  %i{k} = extractelement <64 x i8> %chosen, i32 {k}
  %w{k} = zext i8 %i{k} to i32
  %at{k} = add i32 %w{k}, {k // 16 * 16}
  %b{k} = extractelement <64 x i8> %table, i32 %at{k}
  %r{k + 1} = insertelement <64 x i8> %r{k}, i8 %b{k}, i32 {k}"""
        for k in range(64)
    )
    return f"""
define <64 x i8> @{_name(instruction)}(<64 x i8> %table, <64 x i8> %indices) {{
  %chosen = and <64 x i8> %indices, splat (i8 15)
  %r0 = freeze <64 x i8> poison
{steps}
  ret <64 x i8> %r64
}}
"""


VECTOR_INSTRUCTIONS = {
    "llvm.x86.avx512.vpdpbusd.512": _vpdpbusd("llvm.x86.avx512.vpdpbusd.512", 16),
    "llvm.x86.avx512.vpdpbusd.256": _vpdpbusd("llvm.x86.avx512.vpdpbusd.256", 8),
    "llvm.x86.avx512.pmaddw.d.512": _vpmaddwd("llvm.x86.avx512.pmaddw.d.512"),
    "llvm.x86.avx512.pshuf.b.512": _vpshufb("llvm.x86.avx512.pshuf.b.512"),
}


class Tiles:
    """The eight tile registers and their configuration."""

    def __init__(self) -> None:
        self.configurations = 0  # how often tiles were taken
        self.rows = np.zeros(8, int)
        self.row_bytes = np.zeros(8, int)
        self.data = np.zeros((8, 16, 64), np.uint8)

    def configure(self, config: int) -> None:
        data = np.frombuffer(ctypes.string_at(config, 64), np.uint8)
        assert data[0] == 1 and not data[1:16].any() and not data[32:48].any() and not data[56:].any()
        self.configurations += 1
        self.row_bytes[:] = data[16:32].view(np.uint16)
        self.rows[:] = data[48:56]
        assert (self.rows <= 16).all() and (self.row_bytes <= 64).all()
        self.data[:] = 0

    def release(self) -> None:
        self.rows[:] = 0

    def zero(self, tile: int) -> None:
        assert self.rows[tile]
        self.data[tile] = 0

    def load(self, tile: int, address: int, stride: int) -> None:
        assert self.rows[tile]
        self.data[tile] = 0
        for row in range(self.rows[tile]):
            data = ctypes.string_at(address + row * stride, int(self.row_bytes[tile]))
            self.data[tile, row, : len(data)] = np.frombuffer(data, np.uint8)

    def store(self, tile: int, address: int, stride: int) -> None:
        for row in range(self.rows[tile]):
            ctypes.memmove(address + row * stride, self.data[tile, row].tobytes(), int(self.row_bytes[tile]))

    def multiply(self, sums: int, a: int, b: int) -> None:
        """TDPBSSD: int32 sums += int8 a times int8 b, four values of k at a time."""
        quads = self.row_bytes[a] // 4
        assert self.rows[sums] == self.rows[a] and quads == self.rows[b] and self.row_bytes[sums] == self.row_bytes[b]
        left = self.data[a, : self.rows[a], : self.row_bytes[a]].view(np.int8).reshape(-1, quads, 4)
        right = self.data[b, :quads, : self.row_bytes[b]].view(np.int8).reshape(quads, -1, 4)
        target = self.data[sums].view(np.int32)[: self.rows[a], : self.row_bytes[b] // 4]
        target += np.einsum("mqi,qni->mn", left.astype(np.int32), right.astype(np.int32))


TILES = Tiles()
_INSTRUCTIONS: dict[str, tuple[Callable[..., None], tuple[Any, ...]]] = {
    "ldtilecfg": (TILES.configure, (_ADDRESS,)),
    "tilerelease": (TILES.release, ()),
    "tilezero": (TILES.zero, (_BYTE,)),
    "tileloadd64": (TILES.load, (_BYTE, _ADDRESS, _LONG)),
    "tilestored64": (TILES.store, (_BYTE, _ADDRESS, _LONG)),
    "tdpbssd": (TILES.multiply, (_BYTE, _BYTE, _BYTE)),
}
_CALLBACKS = {name: ctypes.CFUNCTYPE(None, *kinds)(function) for name, (function, kinds) in _INSTRUCTIONS.items()}


def vpdpbusd_once(sums: NDArray[np.int32], unsigned: NDArray[np.uint8], signed: NDArray[np.int8]) -> NDArray[np.int32]:
    """Run one emulated instruction alone."""
    instruction = "llvm.x86.avx512.vpdpbusd.512"
    engine = compile_here(
        f"""
define void @once(ptr %sums, ptr %unsigned, ptr %signed) {{
  %s = load <16 x i32>, ptr %sums, align 1
  %a = load <64 x i8>, ptr %unsigned, align 1
  %b = load <64 x i8>, ptr %signed, align 1
  %result = call <16 x i32> @{_name(instruction)}(<16 x i32> %s, <64 x i8> %a, <64 x i8> %b)
  store <16 x i32> %result, ptr %sums, align 1
  ret void
}}
"""
        + VECTOR_INSTRUCTIONS[instruction]
    )
    result = sums.copy()
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(engine.get_function_address("once"))
    function(result.ctypes.data, unsigned.ctypes.data, signed.ctypes.data)
    return result
