"""The routing op: chosen experts and weights against its twin, and the sorted pairs."""

import numpy as np
import pytest

from kernels.matmul.activations import NEVER
from kernels.matmul.moe_routing import SIGMOID, SOFTMAX, Routing
from kernels.run.program import Program
from tests.kernels import reference_moe
from tests.kernels.matmul.moe_ops import emit_route, route
from tests.kernels.ops import Float32, a_team, same_bits


def random_logits(rows: int, experts: int, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).normal(0, 2, (rows, experts)).astype(np.float32)


def assert_sorted(routing: Routing, rows: int, crossover: int = NEVER) -> None:
    """Check what the later ops read against a stable sort of the chosen experts."""
    chosen = routing.chosen[:rows].reshape(-1)
    order = np.argsort(chosen, kind="stable")
    counts = np.bincount(chosen, minlength=len(routing.touched))
    segments = np.concatenate([[0], np.cumsum(counts)])
    assert np.array_equal(routing.pairs[: len(order)], order)
    assert np.array_equal(routing.places[:rows].reshape(-1)[order], np.arange(len(order)))
    assert np.array_equal(routing.segments[:-1], segments)
    touched = np.flatnonzero(counts)
    assert np.array_equal(routing.touched[: routing.record["touched_count"][0]], touched)
    tiles = []
    for expert in touched:
        start, left = segments[expert], counts[expert]
        widest = 16 if left >= crossover else 8
        while left:
            tiles.append(start)
            width = next(width for width in (16, 8, 4, 2, 1) if width <= min(left, widest))
            start, left = start + width, left - width
    assert np.array_equal(routing.tiles[: routing.record["tile_count"][0] + 1], [*tiles, len(order)])
    assert routing.record["finished"][0] == 0


@pytest.mark.parametrize(("experts", "active"), [(1, 1), (4, 4), (60, 4), (256, 8), (512, 32)])
@pytest.mark.parametrize("scoring", [SOFTMAX, SIGMOID])
@pytest.mark.parametrize("renormalize", [True, False])
def test_choices_and_weights_are_those_of_the_slow_twin(
    experts: int, active: int, scoring: int, renormalize: bool
) -> None:
    logits = random_logits(21, experts)
    routing = route(logits, active, scoring=scoring, renormalize=int(renormalize), scale=2.5)
    chosen, weights = reference_moe.route(logits, active, scoring=scoring, renormalize=renormalize, scale=2.5)
    assert np.array_equal(routing.chosen, chosen)
    np.testing.assert_allclose(routing.weights, weights, rtol=2e-6)
    assert_sorted(routing, 21)


@pytest.mark.parametrize("scoring", [SOFTMAX, SIGMOID])
def test_a_bias_changes_the_choice_and_not_the_weights(scoring: int) -> None:
    logits, bias = random_logits(30, 40), np.random.default_rng(1).normal(0, 1, 40).astype(np.float32)
    routing = route(logits, 6, scoring=scoring, bias=bias)
    chosen, weights = reference_moe.route(logits, 6, scoring=scoring, bias=bias)
    assert np.array_equal(routing.chosen, chosen)
    assert not np.array_equal(chosen, reference_moe.route(logits, 6, scoring=scoring)[0])
    np.testing.assert_allclose(routing.weights, weights, rtol=2e-6)


def test_ties_go_to_the_lower_expert() -> None:
    logits = np.zeros((2, 20), np.float32)
    logits[1, [3, 7, 11, 19]] = 1, 2, 1, 2
    routing = route(logits, 5)
    assert routing.chosen.tolist() == [[0, 1, 2, 3, 4], [7, 19, 3, 11, 0]]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_row_is_routed_alike_alone_and_among_others(threads: int) -> None:
    logits = random_logits(40, 70)
    order = np.random.default_rng(2).permutation(40)
    together = route(logits[order], 5, threads=threads)
    assert_sorted(together, 40)
    for place, row in enumerate(order):
        alone = route(logits[row : row + 1], 5)
        assert np.array_equal(alone.chosen[0], together.chosen[place])
        assert same_bits(alone.weights[0], together.weights[place])


@pytest.mark.parametrize("crossover", [16, 45, 46, NEVER])
def test_one_expert_may_take_all_rows(crossover: int) -> None:
    logits = random_logits(45, 9)
    logits[:, 4] += 100
    routing = route(logits, 2, crossover=crossover)
    assert routing.segments[5] - routing.segments[4] == 45
    assert_sorted(routing, 45, crossover)


@pytest.mark.parametrize("scoring", [SOFTMAX, SIGMOID])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_show_in_the_weights_of_their_row_alone(bad: float, scoring: int) -> None:
    logits = random_logits(6, 33)
    clean = route(logits, 4, scoring=scoring)
    logits[2, 5], logits[4] = bad, bad
    routing = route(logits, 4, scoring=scoring)
    assert np.isnan(routing.weights[[2, 4]]).all()
    assert all(len(set(row)) == 4 and min(row) >= 0 and max(row) < 33 for row in routing.chosen.tolist())
    others = [0, 1, 3, 5]
    assert same_bits(routing.weights[others], clean.weights[others])
    assert_sorted(routing, 6)


def test_buffers_serve_steps_of_different_numbers_of_rows() -> None:
    logits, rows, routing = random_logits(12, 32), np.array([12]), Routing.allocate(12, 32, 3)
    program, scores = Program(), logits.copy()
    emit_route(program, routing, scores, rows, 32)
    program.finish()
    with a_team(2) as team:
        for count in (12, 1, 7):
            rows[0], scores[:] = count, logits
            team.run(program)
            assert_sorted(routing, count)
