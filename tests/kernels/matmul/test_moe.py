"""A mixture of experts: the bits of the dense ops expert by expert, and near the slow twin."""

import numpy as np
import pytest

from kernels.matmul.activations import NEVER
from kernels.quant.weight_types import WEIGHT_TYPES
from tests.kernels import reference, reference_moe
from tests.kernels.matmul.moe_ops import Layer, route
from tests.kernels.ops import CROSSOVERS, TIERS, Float32, float_tiles, matmul, same_bits, wide
from tests.kernels.simd.test_exp import exp

TYPES = ("Q4_0", "Q8_0", "Q4_K", "F16")


def inputs(layer: Layer, rows: int, seed: int = 0) -> tuple[Float32, Float32]:
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, layer.dim)).astype(np.float32)
    return x, random.normal(0, 2, (rows, layer.experts)).astype(np.float32)


def dense(layer: Layer, x: Float32, logits: Float32, tier: str) -> Float32:
    """Each row and expert by the ops of dense layers, added in rank order."""
    routing = route(logits, layer.active)
    y = np.zeros_like(x)
    for row in range(len(x)):
        for expert, weight in zip(routing.chosen[row], routing.weights[row], strict=True):
            gate, up = (matmul(layer.name, raw[expert], x[row : row + 1], tier) for raw in (layer.gate, layer.up))
            hidden = gate / (1 + exp(-gate.ravel()).reshape(gate.shape)) * up
            value = matmul(layer.name, layer.down[expert], hidden, tier)
            y[row] = reference.fma(np.full(layer.dim, weight), value[0], y[row])
    return y


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("name", TYPES)
def test_the_bits_are_those_of_dense_ops_expert_by_expert(name: str, tier: str) -> None:
    layer = Layer(name, experts=5, active=2, dim=wide(name, 3), ff=wide(name, 2))
    x, logits = inputs(layer, 13)
    assert same_bits(layer.run(x, logits, tier), dense(layer, x, logits, tier))


@pytest.mark.parametrize("name", TYPES)
def test_the_result_is_near_the_slow_twin(name: str) -> None:
    layer, kind = Layer(name, experts=8, active=3, dim=wide(name, 4), ff=wide(name, 3)), WEIGHT_TYPES[name]
    x, logits = inputs(layer, 9)
    chosen, weights = reference_moe.route(logits, 3)
    exact = reference_moe.mixture(x, chosen, weights, (kind, layer.gate), (kind, layer.up), (kind, layer.down))
    tolerance = 1e-5 if kind.takes_floats else 2e-3  # a hidden value may be rounded to another integer
    assert np.abs(layer.run(x, logits, TIERS[0]) - exact).max() < tolerance * np.abs(exact).max()


@pytest.mark.parametrize("name", TYPES)
def test_a_row_has_the_same_bits_alone_and_in_any_company(name: str) -> None:
    layer = Layer(name, experts=6, active=3, dim=wide(name, 2), ff=wide(name, 3))
    x, logits = inputs(layer, 27)
    alone = np.concatenate([layer.run(x[r : r + 1], logits[r : r + 1], TIERS[0]) for r in range(27)])
    for threads, groups_per_task in ((1, 1), (2, 3), (3, 1)):
        order = np.random.default_rng(threads).permutation(27)
        together = layer.run(x[order], logits[order], TIERS[0], threads=threads, groups_per_task=groups_per_task)
        assert same_bits(together, alone[order]), threads


@pytest.mark.parametrize(("experts", "active", "favourite"), [(4, 4, None), (40, 1, None), (7, 2, 5), (1, 1, None)])
def test_any_spread_of_rows_over_experts_gives_the_bits_of_dense_ops(
    experts: int, active: int, favourite: int | None
) -> None:
    layer = Layer("Q4_0", experts, active, dim=64, ff=64)
    x, logits = inputs(layer, 21)
    if favourite is not None:
        logits[:, favourite] += 50
    assert same_bits(layer.run(x, logits, TIERS[0], threads=2), dense(layer, x, logits, TIERS[0]))


def test_ties_in_the_router_go_to_the_lower_expert() -> None:
    layer = Layer("Q8_0", experts=6, active=2, dim=64, ff=64)
    x, logits = inputs(layer, 4)
    tied, first = np.zeros_like(logits), np.zeros_like(logits)
    first[:, :2] = 1
    assert same_bits(layer.run(x, tied, TIERS[0]), layer.run(x, first, TIERS[0]))


def test_more_columns_than_a_task_takes_are_right() -> None:
    layer = Layer("Q4_0", experts=3, active=2, dim=1056, ff=544)
    x, logits = inputs(layer, 3)
    assert same_bits(layer.run(x, logits, TIERS[0], threads=2), dense(layer, x, logits, TIERS[0]))


@pytest.mark.parametrize("gated", [True, False])
def test_a_shared_expert_is_added_last_and_the_sum_goes_to_the_residual(gated: bool) -> None:
    layer = Layer("Q8_0", experts=4, active=2, dim=64, ff=64)
    x, logits = inputs(layer, 11)
    random = np.random.default_rng(8)
    residual, shared = (random.standard_normal(x.shape).astype(np.float32) for _ in range(2))
    shared_gate = random.normal(0, 3, (11, 16)).astype(np.float32) if gated else None
    routed = layer.run(x, logits, TIERS[0])
    weight = np.float32(1) if shared_gate is None else 1 / (1 + exp(-shared_gate[:, 0]))[:, None]
    y = layer.run(x, logits, TIERS[0], residual=residual, shared=shared, shared_gate=shared_gate)
    assert same_bits(y, residual + reference.fma(np.broadcast_to(weight, x.shape), shared, routed))


def test_a_router_value_that_is_not_a_number_shows_in_its_row_alone() -> None:
    layer = Layer("Q4_0", experts=5, active=2, dim=64, ff=64)
    x, logits = inputs(layer, 10)
    clean = layer.run(x, logits, TIERS[0])
    logits[3, 2], logits[7] = np.nan, np.nan
    y = layer.run(x, logits, TIERS[0], threads=2)
    assert np.isnan(y[[3, 7]]).all()
    others = [0, 1, 2, 4, 5, 6, 8, 9]
    assert same_bits(y[others], clean[others])


@pytest.mark.parametrize("crossover", CROSSOVERS)
def test_the_crossover_is_that_of_each_experts_own_rows(crossover: int) -> None:
    layer = Layer("F16", experts=3, active=2, dim=96, ff=64)
    x, logits = inputs(layer, 110)
    logits[:, 0] += 3  # one expert has most rows, the others have fewer than the crossovers in between
    tiles = float_tiles("F16", TIERS[0])
    for threads in (1, 2):
        result = layer.run(x, logits, TIERS[0], threads=threads, crossover=crossover, tiles=tiles)
        assert same_bits(result, layer.run(x, logits, TIERS[0], crossover=NEVER))
