"""What tests of bits compare with: each of their modules says which `model`, and which `tokens`."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.loading.runner import Runner
from tests.engine.runners import blocks_for, feed, loaded


@pytest.fixture(scope="module")
def runner(model: Path) -> Iterator[Runner]:
    with loaded(model) as runner:
        yield runner


@pytest.fixture(scope="module")
def expected(runner: Runner, tokens: list[int]) -> NDArray[np.float32]:
    """The logits of every token, fed one at a time to one thread of the best tier."""
    return feed(runner, tokens, range(blocks_for(len(tokens))), chunk=1)
