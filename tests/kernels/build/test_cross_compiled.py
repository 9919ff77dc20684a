"""Tiers that this processor may not have: what they compile to, and what they compute by emulated instructions."""

import functools
import platform
import re
from pathlib import Path

import numpy as np
import pytest

from kernels.matmul.activations import BLOCK32
from kernels.matmul.gemv import tile_functions
from kernels.quant.weight_types import WEIGHT_TYPES
from kernels.simd.tiers import TIERS_BY_NAME
from tests.kernels import reference
from tests.kernels.build.cross_compiler import PROCESSORS, compile_into, tile_name
from tests.kernels.build.emulation import TILES, EmulatedTile, vpdpbusd_once
from tests.kernels.matmul.moe_ops import Layer as MixtureLayer
from tests.kernels.matmul.moe_ops import route
from tests.kernels.ops import (
    CROSSOVERS,
    QUANTIZED,
    Float32,
    crossover_of,
    hard_matrix,
    hard_rows,
    matmul_by,
    random_matrix,
    same_bits,
    wide,
)
from tests.kernels.matmul.test_gated_matmul import Layer as GatedLayer
from tests.kernels.matmul.test_gated_matmul import same

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


@functools.cache
def emulated_tile(folder: Path, name: str) -> EmulatedTile:
    return EmulatedTile(folder, name)


def emulated_functions(folder: Path, tier: str, name: str) -> dict[str, int]:
    """Tile functions of a type; widths that are not compiled for the tier run on the generic one."""
    tiles = {width: emulated_tile(folder, tile_name(name, width)) for width in LANES[tier][name]}
    functions = tile_functions(WEIGHT_TYPES[name], TIERS_BY_NAME["generic"].number)
    return functions | {f"tile{width}": tile.address for width, tile in tiles.items()}


def test_with_instructions_emulated_every_tile_gives_the_bits_of_the_slow_twin(compiled: tuple[str, Path]) -> None:
    tier, folder = compiled
    for name in [name for name, widths in LANES[tier].items() if widths]:
        functions = emulated_functions(folder, tier, name)
        columns = wide(name, 3)
        plain = rows_of(39, columns)
        hard = np.concatenate([hard_rows(columns), hard_rows(columns)[::-1], plain[:9]])
        for raw, x in ((random_matrix(name, 37, columns), plain), (hard_matrix(name), hard)):
            expected = reference.matmul_in_order(WEIGHT_TYPES[name], raw, x)
            result = matmul_by(functions, name, raw, x, crossover=crossover_of(tier))
            assert same_bits(result, expected), (name, np.argwhere(result != expected)[:4])


ON_MATRIX_TILES = pytest.mark.parametrize("compiled", ["amx"], indirect=True)


@ON_MATRIX_TILES
def test_the_crossover_to_matrix_tiles_changes_no_bit(compiled: tuple[str, Path]) -> None:
    tier, folder = compiled
    for name in QUANTIZED:
        functions, columns = emulated_functions(folder, tier, name), wide(name, 2)
        raw, x = random_matrix(name, 37, columns), rows_of(101, columns)
        expected = reference.matmul_in_order(WEIGHT_TYPES[name], raw, x)
        for crossover, row_counts in CROSSOVERS.items():
            for rows in row_counts:
                before = TILES.configurations
                result = matmul_by(functions, name, raw, x[:rows], crossover=crossover)
                assert same_bits(result, expected[:rows]), (name, crossover, rows)
                assert (TILES.configurations > before) == (rows >= crossover)


@ON_MATRIX_TILES
@pytest.mark.parametrize("crossover", CROSSOVERS)
@pytest.mark.parametrize("types", [("Q4_0", "Q8_0"), ("Q4_K", "Q6_K")])
def test_the_crossover_of_gate_and_up_is_that_of_all_rows(
    types: tuple[str, str], crossover: int, compiled: tuple[str, Path]
) -> None:
    tier, folder = compiled
    layer, tiles = GatedLayer(*types, 64), {name: emulated_functions(folder, tier, name) for name in types}
    for rows in (*CROSSOVERS[crossover], 70):
        x, before = layer.rows(rows), TILES.configurations
        result = layer.run(x, BLOCK32, "generic", rows_at_once=32, crossover=crossover, tiles=tiles)
        assert same(result, layer.plain(x, BLOCK32, "generic", crossover=crossover)), rows
        assert (TILES.configurations > before) == (rows >= crossover)


@ON_MATRIX_TILES
@pytest.mark.parametrize("name", ["Q8_0", "Q4_K"])
def test_the_crossover_in_a_mixture_is_that_of_each_experts_rows(name: str, compiled: tuple[str, Path]) -> None:
    tier, folder = compiled
    layer = MixtureLayer(name, experts=3, active=2, dim=wide(name, 2), ff=wide(name, 1))
    x, logits = rows_of(110, layer.dim), rows_of(110, 3)
    logits[:, 0] += 3  # one expert has most rows, the others have fewer than the crossovers in between
    tiles = emulated_functions(folder, tier, name)
    expected = layer.run(x, logits, "generic")
    segments = np.diff(route(logits, 2).segments[:4])
    for crossover in CROSSOVERS:
        before = TILES.configurations
        assert same_bits(layer.run(x, logits, "generic", crossover=crossover, tiles=tiles), expected), crossover
        groups = sum(len(raw[0]) // 16 for raw in (layer.gate, layer.up, layer.down))
        assert TILES.configurations - before == groups * (segments >= crossover).sum()


def rows_of(count: int, columns: int) -> Float32:
    return np.random.default_rng(2).standard_normal((count, columns)).astype(np.float32)


@ON_MATRIX_TILES
def test_tiles_are_given_back(compiled: tuple[str, Path]) -> None:
    _, folder = compiled
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
