"""Tiers that this processor may not have: what they compile to, and what they compute by emulated instructions."""

import platform
import re
from pathlib import Path

import numpy as np
import pytest

from kernels import reference
from kernels.cpu import TIER_NUMBERS
from kernels.gemv import tile_functions
from kernels.quant.weight_types import WEIGHT_TYPES
from tests.kernels.cross_compiler import PROCESSORS, compile_into, tile_name
from tests.kernels.emulation import TILES, EmulatedTile, vpdpbusd_once
from tests.kernels.ops import QUANTIZED, hard_matrix, hard_rows, matmul_by, random_matrix, same_bits, wide

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="this processor is no x86-64")

# Every type at the width that does most of the work; every width for one type of each block length.
_EVERY_WIDTH = ("Q4_1", "Q6_K")
LANES: dict[str, dict[str, tuple[int, ...]]] = {
    "avxvnni": {name: (8, 4, 2, 1) if name in _EVERY_WIDTH else () for name in QUANTIZED},
    "avx512": {name: (8, 4, 2, 1) if name in _EVERY_WIDTH else (8,) for name in QUANTIZED},
    "amx": {name: (16,) for name in QUANTIZED},
}
TILES_OF_TIER = {
    tier: [tile_name(name, width) for name, widths in types.items() for width in widths]
    for tier, types in LANES.items()
}


@pytest.fixture(scope="module", params=PROCESSORS)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A tier, and a folder with the IR and the assembly of its tiles."""
    folder = tmp_path_factory.mktemp(request.param)
    compile_into(folder, request.param, TILES_OF_TIER[request.param])
    return request.param, folder


def test_tiles_use_the_instructions_of_their_tier(compiled: tuple[str, Path]) -> None:
    tier, folder = compiled
    for name in TILES_OF_TIER[tier]:
        assembly = (folder / f"{name}.s").read_text()
        used = re.findall(r"(?:vpdpbusd|tdpbssd)\s.*", assembly)
        register = {"avxvnni": "%ymm", "avx512": "%zmm", "amx": "%tmm"}[tier]
        assert used and all(register in instruction for instruction in used), name
        assert tier == "amx" or "vpmaddubsw" not in assembly, name


def test_with_instructions_emulated_every_tile_gives_the_bits_of_the_slow_twin(compiled: tuple[str, Path]) -> None:
    tier, folder = compiled
    for name in [name for name, widths in LANES[tier].items() if widths]:
        tiles = {width: EmulatedTile(folder, tile_name(name, width)) for width in LANES[tier][name]}
        # Widths that are not compiled here run on the generic tier.
        functions = tile_functions(WEIGHT_TYPES[name], TIER_NUMBERS["generic"])
        functions |= {f"tile{width}": tile.address for width, tile in tiles.items()}
        columns = wide(name, 3)
        plain = np.random.default_rng(2).standard_normal((39, columns)).astype(np.float32)
        hard = np.concatenate([hard_rows(columns), hard_rows(columns)[::-1], plain[:9]])
        for raw, x in ((random_matrix(name, 37, columns), plain), (hard_matrix(name), hard)):
            expected = reference.matmul_in_order(WEIGHT_TYPES[name], raw, x)
            result = matmul_by(functions, name, raw, x, widest=16 if tier == "amx" else 8)
            assert same_bits(result, expected), (name, np.argwhere(result != expected)[:4])


def test_tiles_are_given_back(compiled: tuple[str, Path]) -> None:
    tier, folder = compiled
    if tier != "amx":
        pytest.skip("only matrix tiles are taken and given back")
    assembly = (folder / f"{tile_name('Q4_K', 16)}.s").read_text()
    assert "ldtilecfg" in assembly and "tilerelease" in assembly
    assert not TILES.rows.any()


def test_the_emulated_instruction_adds_four_products_without_saturation() -> None:
    random = np.random.default_rng(0)
    sums = random.integers(-(2**31), 2**31, 16).astype(np.int32)
    unsigned, signed = random.integers(0, 256, 64).astype(np.uint8), random.integers(-128, 128, 64).astype(np.int8)
    unsigned[:8], signed[:4], signed[4:8] = 255, 127, -128
    sums[:2] = 0, 2**31 - 1
    products = (unsigned.astype(np.int64) * signed).reshape(16, 4).sum(axis=1)
    assert np.array_equal(vpdpbusd_once(sums, unsigned, signed), (sums + products).astype(np.int32))
