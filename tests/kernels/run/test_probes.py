"""Measuring bandwidth and peak arithmetic: positive numbers, over the memory that was given and by every product."""

import numpy as np
import pytest

from kernels.machine.memory import zeroed
from kernels.run import probes
from kernels.run.probes import ReadProbe, read_bandwidth
from kernels.simd.tiers import TIERS_BY_NAME
from tests.kernels.ops import TIERS, a_team


@pytest.mark.parametrize("threads", [1, 2])
def test_bandwidth_is_a_positive_number(threads: int) -> None:
    with a_team(threads) as team:
        assert 0 < read_bandwidth(team, megabytes=16, repeats=2) < 1e13


@pytest.mark.parametrize(("given", "is_own"), [([3, 1], True), ([3, 2], False), ([0.5, 9], False)])
def test_bandwidth_is_that_of_the_given_memory_where_it_is_large_enough(given: list[float], is_own: bool) -> None:
    memory = [zeroed((int(mebibytes * 2**20),), np.uint8) for mebibytes in given]
    with a_team(1) as team:
        probe = ReadProbe(team, 5, memory)
        assert 0 < probe.measure() < 1e13
        assert (probe._memory is not memory) == is_own


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("tier", TIERS)
def test_the_peak_is_a_positive_number(tier: str, floats: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "_STEPS", 16)
    with a_team(1) as team:
        assert 0 < probes.PeakProbe(team, TIERS_BY_NAME[tier].number, floats=floats).measure() < 1e16


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("tier", TIERS)
def test_every_product_of_every_step_is_added(tier: str, floats: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 16
    monkeypatch.setattr(probes, "_STEPS", steps)
    with a_team(2) as team:
        probe = probes.PeakProbe(team, TIERS_BY_NAME[tier].number, floats=floats)
        if floats:
            probe._operands.view(np.float32)[:] = 1
        probe.measure()
    sums = probe._sums.view(np.float32 if floats else np.int32).reshape(2, -1)[:, : 10 * 16]
    # A sum of 8 rows stands in half of its 64 bytes.
    expected = 32 * steps * (1 if floats else 4)
    assert set(sums[sums != 0].tolist()) == {expected}
    assert (sums != 0).sum() * 2 * expected == probe._operations
