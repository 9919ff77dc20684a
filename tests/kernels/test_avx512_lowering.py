"""The avx512 tiles: what they compile to, and what they compute with their one special instruction emulated."""

import ctypes
import platform
import re
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest
from numpy.typing import NDArray

from kernels import reference
from kernels.activations import TILE_WIDTHS
from kernels.cpu import supported_tiers
from kernels.quant.weight_types import WEIGHT_TYPES
from tests.kernels.avx512_compiler import compile_into, tile_name
from tests.kernels.ops import QUANTIZED, hard_matrix, hard_rows, matmul, matmul_by, random_matrix, same_bits

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="this processor is no x86-64")

INSTRUCTION = "llvm.x86.avx512.vpdpbusd.512"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the IR and the assembly of every tile."""
    folder = tmp_path_factory.mktemp("avx512")
    compile_into(folder)
    return folder


@pytest.mark.parametrize("lanes", TILE_WIDTHS)
@pytest.mark.parametrize("name", QUANTIZED)
def test_a_block_takes_one_vpdpbusd_for_each_quad_and_lane(compiled: Path, name: str, lanes: int) -> None:
    assembly = (compiled / f"{tile_name(name, lanes)}.s").read_text()
    dots = re.findall(r"vpdpbusd\s.*", assembly)
    assert dots and len(dots) % (8 * lanes) == 0
    assert all("%zmm" in dot for dot in dots)
    assert "vpmaddubsw" not in assembly and "vpmulld" not in assembly


@pytest.mark.parametrize("name", QUANTIZED)
def test_with_the_instruction_emulated_the_tiles_give_the_bits_of_the_slow_twin(compiled: Path, name: str) -> None:
    emulated = {lanes: Emulated(compiled, name, lanes) for lanes in TILE_WIDTHS}
    tiles = {f"tile{lanes}": tile.address for lanes, tile in emulated.items()}
    random = np.random.default_rng(2).standard_normal((15, 96)).astype(np.float32)
    for raw in (random_matrix(name, 37, 96), hard_matrix(name)):
        for x in (random, hard_rows()):
            expected = reference.matmul_in_order(WEIGHT_TYPES[name], raw, x)
            assert same_bits(matmul_by(tiles, name, raw, x), expected)
            assert same_bits(matmul(name, raw, x, "generic"), expected)


@pytest.mark.skipif("avx512" not in supported_tiers(), reason="this processor has no AVX-512 VNNI")
def test_the_instruction_itself_gives_the_bits_of_the_slow_twin() -> None:
    for name in QUANTIZED:
        raw, x = hard_matrix(name), hard_rows()
        assert same_bits(matmul(name, raw, x, "avx512"), reference.matmul_in_order(WEIGHT_TYPES[name], raw, x))


def test_the_emulated_instruction_adds_four_products_without_saturation() -> None:
    random = np.random.default_rng(0)
    sums = random.integers(-(2**31), 2**31, 16).astype(np.int32)
    unsigned, signed = random.integers(0, 256, 64).astype(np.uint8), random.integers(-128, 128, 64).astype(np.int8)
    unsigned[:8], signed[:4], signed[4:8] = 255, 127, -128
    sums[:2] = 0, 2**31 - 1
    products = (unsigned.astype(np.int64) * signed).reshape(16, 4).sum(axis=1)
    assert np.array_equal(emulated_once(sums, unsigned, signed), (sums + products).astype(np.int32))


class Emulated:
    """A tile's IR, compiled for this processor with `vpdpbusd` replaced by plain IR of the same meaning."""

    def __init__(self, folder: Path, name: str, lanes: int) -> None:
        source = (folder / f"{tile_name(name, lanes)}.ll").read_text()
        declaration = re.search(rf"^declare .*@{re.escape(INSTRUCTION)}\(.*$", source, re.MULTILINE)
        entry = re.search(r"@(cfunc\.\w+)\(", source)
        assert declaration and entry
        source = source.replace(declaration.group(), "").replace(INSTRUCTION, "emulated_vpdpbusd")
        self._engine = compile_here(source + emulation())
        self.address = self._engine.get_function_address(entry.group(1))


def compile_here(source: str) -> llvm.ExecutionEngine:
    module = llvm.parse_assembly(source)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=1, jit=True
    )
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


def emulation() -> str:
    """VPDPBUSD by the Intel SDM: to each int32 add four products of unsigned and signed bytes, without saturation."""
    chosen = [", ".join(f"i32 {4 * lane + i}" for lane in range(16)) for i in range(4)]
    shuffles = "\n".join(
        f"  %p{i} = shufflevector <64 x i32> %products, <64 x i32> poison, <16 x i32> <{chosen[i]}>" for i in range(4)
    )
    return f"""
define <16 x i32> @emulated_vpdpbusd(<16 x i32> %sums, <64 x i8> %unsigned, <64 x i8> %signed) {{
  %wide_unsigned = zext <64 x i8> %unsigned to <64 x i32>
  %wide_signed = sext <64 x i8> %signed to <64 x i32>
  %products = mul <64 x i32> %wide_unsigned, %wide_signed
{shuffles}
  %one = add <16 x i32> %sums, %p0
  %two = add <16 x i32> %one, %p1
  %three = add <16 x i32> %two, %p2
  %four = add <16 x i32> %three, %p3
  ret <16 x i32> %four
}}
"""


def emulated_once(sums: NDArray[np.int32], unsigned: NDArray[np.uint8], signed: NDArray[np.int8]) -> NDArray[np.int32]:
    """Run the emulation alone."""
    engine = compile_here(
        """
define void @once(ptr %sums, ptr %unsigned, ptr %signed) {
  %s = load <16 x i32>, ptr %sums, align 1
  %a = load <64 x i8>, ptr %unsigned, align 1
  %b = load <64 x i8>, ptr %signed, align 1
  %result = call <16 x i32> @emulated_vpdpbusd(<16 x i32> %s, <64 x i8> %a, <64 x i8> %b)
  store <16 x i32> %result, ptr %sums, align 1
  ret void
}
"""
        + emulation()
    )
    result = sums.copy()
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(engine.get_function_address("once"))
    function(result.ctypes.data, unsigned.ctypes.data, signed.ctypes.data)
    return result
