"""The peak measurement, and the clock of compiled code."""

import time

import numpy as np
import pytest

from kernels.build.jit import njit_inline
from kernels.measure import peak
from kernels.run.program import monotonic_ns
from kernels.simd.tiers import TIERS_BY_NAME
from tests.kernels.ops import TIERS, a_team


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("tier", TIERS)
def test_the_peak_is_a_positive_number(tier: str, floats: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak, "_STEPS", 16)
    with a_team(1) as team:
        assert 0 < peak.PeakProbe(team, TIERS_BY_NAME[tier].number, floats=floats).measure() < 1e16


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("tier", TIERS)
def test_every_product_of_every_step_is_added(tier: str, floats: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 16
    monkeypatch.setattr(peak, "_STEPS", steps)
    with a_team(2) as team:
        probe = peak.PeakProbe(team, TIERS_BY_NAME[tier].number, floats=floats)
        if floats:
            probe._operands.view(np.float32)[:] = 1
        probe.measure()
    sums = probe._sums.view(np.float32 if floats else np.int32).reshape(2, -1)[:, : 10 * 16]
    # A sum of 8 rows stands in half of its 64 bytes.
    expected = 32 * steps * (1 if floats else 4)
    assert set(sums[sums != 0].tolist()) == {expected}
    assert (sums != 0).sum() * 2 * expected == probe._operations


@njit_inline
def _now():
    return monotonic_ns()


def test_the_clock_is_that_of_python() -> None:
    before, now, after = time.monotonic_ns(), _now(), time.monotonic_ns()
    assert before <= now <= after
