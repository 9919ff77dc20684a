"""The op of gate and up: the bits of the plain matmul, the activation and the packing, however a step is shared out."""

from collections.abc import Sequence

import numpy as np
import pytest

from kernels.build.jit import address
from kernels.matmul import gemv
from kernels.matmul.activations import BLOCK32, BLOCK256, FLOATS, Activations, form_of
from kernels.matmul.gated_matmul import GATED, MAX_UNIT_GROUPS, cut_units, gated_kernel, thread_pairs
from kernels.matmul.row_ops import GELU, SILU
from kernels.quant.weight_types import WEIGHT_TYPES
from kernels.run.program import Program
from kernels.simd.tiers import TIERS_BY_NAME
from tests.kernels import reference
from tests.kernels.ops import (
    CROSSOVERS,
    TIERS,
    Bytes,
    Float32,
    a_team,
    crossover_of,
    float_tiles,
    matmul,
    packed,
    random_matrix,
    wide,
)
from tests.kernels.simd.test_exp import exp

GRANULES = {FLOATS: 1, BLOCK32: 2, BLOCK256: 16}
TYPES = [("Q4_0", "Q4_0"), ("Q4_K", "Q4_K"), ("Q8_0", "Q5_1"), ("Q6_K", "Q4_K"), ("Q4_0", "Q4_K"), ("F16", "F32")]


class Layer:
    """Gate and up, random matrices of [outputs, columns]."""

    def __init__(self, gate: str, up: str, outputs: int, blocks: int = 2) -> None:
        self.names, self.outputs = (gate, up), outputs
        self.columns = max(wide(gate, blocks), wide(up, blocks))
        self.raw = [random_matrix(name, outputs, self.columns, seed) for seed, name in enumerate(self.names)]
        self.packed: list[Bytes] = [WEIGHT_TYPES[n].pack(raw) for n, raw in zip(self.names, self.raw, strict=True)]

    def rows(self, count: int, seed: int = 1) -> Float32:
        return np.random.default_rng(seed).standard_normal((count, self.columns)).astype(np.float32)

    def plain(
        self,
        x: Float32,
        form: int,
        tier: str,
        activation: int = SILU,
        crossover: int | None = None,
        biases: Sequence[Float32 | None] = (None, None),
    ) -> Activations:
        """By the plain ops."""
        gate, up = (matmul(name, raw, x, tier) for name, raw in zip(self.names, self.raw, strict=True))
        gate, up = (sums if bias is None else sums + bias for sums, bias in zip((gate, up), biases, strict=True))
        exponent = -gate
        if activation == GELU:
            factor = np.float32(-2 * np.sqrt(2 / np.pi))
            cubic = np.full_like(gate, np.float32(-2 * np.sqrt(2 / np.pi) * 0.044715))
            exponent = gate * reference.fma(gate * gate, cubic, np.full_like(gate, factor))
        activated = gate / (1 + exp(exponent.ravel()).reshape(gate.shape)) * up
        return packed(activated, form, crossover_of(tier) if crossover is None else crossover)

    def run(
        self,
        x: Float32,
        form: int,
        tier: str,
        *,
        activation: int = SILU,
        threads: int = 1,
        rows_at_once: int = 64,
        units: tuple[int, int] | None = None,
        times: int = 1,
        crossover: int | None = None,
        tiles: dict[str, dict[str, int]] | None = None,
        biases: Sequence[Float32 | None] = (None, None),
    ) -> Activations:
        """By the op under test, `times` times; units: groups of a unit and of a part.

        tiles: by type, the addresses of other tile functions than its own."""
        unit, part = units or (GRANULES[form], 1)
        crossover = crossover_of(tier) if crossover is None else crossover
        forms = {form_of(WEIGHT_TYPES[name]) for name in self.names}
        inputs = packed(x, sum(forms), crossover)
        fields = [
            {
                "weights": weights.ctypes.data,
                "groups": len(weights),
                "blocks": weights.shape[1],
                "columns": self.columns,
                "output_stride": unit * 16,
                "packed": inputs.address,
                **(tiles[name] if tiles else gemv.tile_functions(WEIGHT_TYPES[name], TIERS_BY_NAME[tier].number)),
            }
            for name, weights in zip(self.names, self.packed, strict=True)
        ]
        pairs = thread_pairs(fields[0], fields[1], threads)
        count, groups = np.array([len(x)]), self.outputs // 16
        scratch = np.full(2 * rows_at_once * max(groups + unit, threads * unit) * 16, np.nan, np.float32)
        counters, result = np.zeros(groups, np.int64), Activations.allocate(len(x), self.outputs, crossover)
        program = Program()
        program.emit(
            GATED,
            address(gated_kernel()),
            pairs=pairs.ctypes.data,
            groups=groups,
            unit_groups=unit,
            part_groups=part,
            columns=self.outputs,
            rows=count.ctypes.data,
            rows_at_once=rows_at_once,
            scratch=scratch.ctypes.data,
            counters=counters.ctypes.data,
            activation=activation,
            gate_bias=0 if biases[0] is None else biases[0].ctypes.data,
            up_bias=0 if biases[1] is None else biases[1].ctypes.data,
            packed=result.address,
            forms=form,
        )
        program.finish()
        with a_team(threads) as team:
            for _ in range(times):
                for buffer in result.buffers.values():
                    buffer[:] = 0
                team.run(program)
        assert not counters.any()
        return result


def same(a: Activations, b: Activations) -> bool:
    return all(a.buffers[name].tobytes() == b.buffers[name].tobytes() for name in a.buffers)


@pytest.mark.parametrize("rows", [1, 3, 8, 13, 64, 65, 150])
@pytest.mark.parametrize("form", [FLOATS, BLOCK32, BLOCK256])
@pytest.mark.parametrize("tier", TIERS)
def test_the_bits_are_those_of_the_plain_ops(tier: str, form: int, rows: int) -> None:
    layer = Layer("Q4_0", "Q4_0", 768)
    x = layer.rows(rows)
    expected = layer.plain(x, form, tier)
    assert same(layer.run(x, form, tier), expected)
    assert same(layer.run(x, form, tier, threads=2, rows_at_once=32), expected)


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("tier", TIERS)
def test_gate_and_up_may_be_of_any_types(tier: str, types: tuple[str, str]) -> None:
    layer = Layer(*types, 256)
    for rows in (5, 70):
        x = layer.rows(rows)
        for form in GRANULES:
            assert same(layer.run(x, form, tier, threads=2), layer.plain(x, form, tier)), (rows, form)


@pytest.mark.parametrize("rows", [2, 70])
def test_gelu_gives_the_bits_of_the_plain_ops(rows: int) -> None:
    layer = Layer("Q8_0", "Q8_0", 96)
    x = 3 * layer.rows(rows)
    result = layer.run(x, BLOCK32, TIERS[0], activation=GELU)
    assert same(result, layer.plain(x, BLOCK32, TIERS[0], GELU))
    assert not same(result, layer.run(x, BLOCK32, TIERS[0]))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [1, 13, 70])
def test_biases_are_added_to_the_finished_sums(rows: int, threads: int) -> None:
    layer = Layer("Q4_1", "Q5_0", 160)
    x, random = layer.rows(rows), np.random.default_rng(rows)
    gate, up = (random.standard_normal(160, dtype=np.float32) for _ in range(2))
    for biases in ((gate, up), (gate, None), (None, up)):
        result = layer.run(x, BLOCK32, TIERS[0], threads=threads, units=(6, 2), rows_at_once=32, biases=biases)
        assert same(result, layer.plain(x, BLOCK32, TIERS[0], biases=biases))


@pytest.mark.parametrize("crossover", CROSSOVERS)
def test_tiles_of_16_rows_end_where_the_rows_at_once_end(crossover: int) -> None:
    layer = Layer("F16", "F32", 96)
    tiles = {name: float_tiles(name, TIERS[0]) for name in layer.names}
    for rows in (*CROSSOVERS[crossover], 70):
        x = layer.rows(rows)
        result = layer.run(x, BLOCK32, TIERS[0], rows_at_once=32, threads=2, crossover=crossover, tiles=tiles)
        assert same(result, layer.plain(x, BLOCK32, TIERS[0], crossover=crossover)), rows


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("units", [(2, 1), (2, 2), (6, 6), (8, 2), (32, 32)])
@pytest.mark.parametrize("rows", [1, 40])
def test_units_parts_and_threads_change_no_bit(rows: int, units: tuple[int, int], threads: int) -> None:
    layer = Layer("Q4_1", "Q5_0", 160)  # 10 groups: the last unit is cut short
    x = layer.rows(rows)
    expected = layer.plain(x, BLOCK32, "generic")
    for rows_at_once in (16, 64):
        result = layer.run(x, BLOCK32, "generic", threads=threads, rows_at_once=rows_at_once, units=units, times=5)
        assert same(result, expected)


@pytest.mark.parametrize("granule", [1, 2, 16])
@pytest.mark.parametrize("group_bytes", [100, 1000, 5000, 18_000, 40_000, 1 << 20])
def test_units_are_whole_blocks_in_equal_parts_of_about_the_bytes_wanted(granule: int, group_bytes: int) -> None:
    unit, part = cut_units(granule, group_bytes, 32 << 10)
    assert unit % granule == 0 and unit % part == 0 and 1 <= part <= unit <= MAX_UNIT_GROUPS
    assert part == 1 or part * group_bytes <= 32 << 10
    assert part == unit or unit == granule
