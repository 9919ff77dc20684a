"""The free variant that the laws are priced against does the same work."""

import numpy as np
import pytest

from benchmarks.price_of_laws import free_tiles
from engine.timed_matmul import TimedMatmul, TimedMatrix
from kernels.cpu import TIER_NUMBERS
from kernels.quant.weight_types import WEIGHT_TYPES, BlockType
from kernels.team import Team


@pytest.mark.parametrize("name", ["Q4_0", "Q4_K"])
def test_the_free_variant_gives_the_same_sums_in_other_bits(name: str) -> None:
    kind, tier, team = WEIGHT_TYPES[name], TIER_NUMBERS["generic"], Team(1)
    assert isinstance(kind, BlockType)
    try:
        matrix = TimedMatrix(kind, 48, 1024, 1)
        ours = TimedMatmul(team, tier, matrix, 3)
        free = TimedMatmul(team, tier, matrix, 3, tiles=free_tiles(kind, tier))
        assert ours.run() > 0 and free.run() > 0
    finally:
        team.stop()
    np.testing.assert_allclose(free.output, ours.output, rtol=0, atol=1e-5 * np.abs(ours.output).max())
    assert free.output.tobytes() != ours.output.tobytes()
