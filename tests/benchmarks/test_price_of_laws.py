"""The variants that the laws are priced by do the same work, and their prices are counted round by round."""

import functools

import numpy as np
import pytest

from benchmarks.price_of_laws import compare, in_turn, paired_tiles
from engine.loading.timed_matmul import TimedMatmul, TimedMatrix
from kernels.quant.weight_types import WEIGHT_TYPES, QuantizedType
from kernels.run.team import Team
from kernels.simd.tiers import TIERS_BY_NAME


@pytest.mark.parametrize("name", ["Q4_0", "Q4_K"])
def test_the_free_variant_gives_the_same_sums_in_other_bits_and_the_paired_one_our_bits(name: str) -> None:
    kind, tier, team = WEIGHT_TYPES[name], TIERS_BY_NAME["generic"].number, Team(1)
    assert isinstance(kind, QuantizedType)
    try:
        matrix = TimedMatrix(kind, 48, 1024, 1)
        ours = TimedMatmul(team, tier, matrix, 3)
        paired, free = (
            TimedMatmul(team, tier, matrix, 3, tiles=paired_tiles(kind, tier, free=free)) for free in (False, True)
        )
        assert ours.run() > 0 and paired.run() > 0 and free.run() > 0
    finally:
        team.stop()
    assert paired.output.tobytes() == ours.output.tobytes()
    np.testing.assert_allclose(free.output, ours.output, rtol=0, atol=1e-5 * np.abs(ours.output).max())
    assert free.output.tobytes() != ours.output.tobytes()


def test_every_round_begins_with_another_variant() -> None:
    order: list[int] = []

    def run(which: int) -> float:
        order.append(which)
        return float(which)

    times = in_turn([functools.partial(run, which) for which in range(3)], 4)
    assert [order[at : at + 3] for at in range(0, 15, 3)] == [[0, 1, 2], [0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]
    assert times.tolist() == [[0, 1, 2]] * 4


def test_prices_are_medians_of_ratios_within_a_round() -> None:
    speed = np.array([1, 1, 1, 3, 1])  # a neighbour comes and goes
    line = compare(np.outer(speed, [6.6, 6.0, 5.0]))
    assert line["price"] == pytest.approx(0.2) and line["shape"] == pytest.approx(0.1)
    assert line["price_quartiles"] == pytest.approx((0.2, 0.2))
    assert line["ours_us"] == pytest.approx(6.6e6)
