"""The bandwidth measurement, and memory for it."""

import numpy as np
import pytest

from kernels.machine.memory import zeroed
from kernels.measure.bandwidth import ReadProbe, read_bandwidth
from tests.kernels.ops import a_team


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


@pytest.mark.parametrize("shape", [(3,), (5, 7), (2, 3, 4096)])
def test_zeroed_memory_is_zero_writable_and_of_the_right_shape(shape: tuple[int, ...]) -> None:
    array = zeroed(shape, np.float32)
    assert array.shape == shape and array.dtype == np.float32 and not array.any()
    array[...] = 1
    assert array.sum() == np.prod(shape)
