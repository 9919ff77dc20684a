"""Scaled rotary positions: yarn by its own formulas in float64, and what makes no sense is refused."""

import math
from collections.abc import Mapping

import numpy as np
import pytest

from engine.errors import ModelFileError, UnsupportedModelError
from engine.families.rope import read_rope
from engine.weights.metadata import Metadata

YARN: dict[str, object] = {
    "x.rope.freq_base": 10000.0,
    "x.rope.scaling.type": "yarn",
    "x.rope.scaling.factor": 8.0,
    "x.rope.scaling.original_context_length": 4096,
}


class NoWeights:
    """A loader of a file without divisors of frequencies."""

    def has(self, name: str) -> bool:
        return False


def table(values: Mapping[str, object], dimensions: int, positions: int) -> np.ndarray:
    rope = read_rope(Metadata(values, "x.gguf"), "x", dimensions)
    return rope.table(NoWeights(), positions).reshape(positions, -1, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("attention", [1.0, 0.5])
def test_yarn_stretches_slow_pairs_and_leaves_fast_ones(attention: float) -> None:
    dimensions, positions = 64, 50
    found = table(YARN | {"x.rope.scaling.attn_factor": attention}, dimensions, positions)
    # From the paper: r is how often a pair turns over the original context; one that turns 32 times is left alone.
    pairs = np.arange(dimensions // 2)
    own = 10000.0 ** (-2 * pairs / dimensions)

    def place(turns: float) -> float:
        return dimensions * math.log(4096 / (turns * 2 * math.pi)) / (2 * math.log(10000.0))

    low, high = math.floor(place(32)), math.ceil(place(1))
    assert 0 < low < high < dimensions // 2
    stretched = np.clip((pairs - low) / (high - low), 0, 1)
    angles = np.arange(positions)[:, None] * (own * (1 - stretched) + own / 8 * stretched)
    magnitude = attention * (0.1 * math.log(8) + 1)
    assert np.allclose(found[..., 0], magnitude * np.cos(angles), atol=1e-6)
    assert np.allclose(found[..., 1], magnitude * np.sin(angles), atol=1e-6)


def test_linear_scaling_divides_positions() -> None:
    linear = {"x.rope.scaling.type": "linear", "x.rope.scaling.factor": 4.0}
    assert np.array_equal(table(linear, 32, 81)[::4], table({}, 32, 21))


BROKEN: dict[str, tuple[dict[str, object], type[Exception], str]] = {
    "another kind": ({"x.rope.scaling.type": "longrope"}, UnsupportedModelError, "by 'longrope'"),
    "no factor": ({"x.rope.scaling.factor": None}, ModelFileError, r"no metadata key 'x\.rope\.scaling\.factor'"),
    "a factor below 1": ({"x.rope.scaling.factor": 0.5}, ModelFileError, "make no sense"),
    "a negative beta": ({"x.rope.scaling.yarn_beta_slow": -1.0}, ModelFileError, "make no sense"),
    "no context": ({"x.rope.scaling.original_context_length": 0}, ModelFileError, "not from 1"),
    "deepseek's multiplier": ({"x.rope.scaling.yarn_log_multiplier": 0.1}, UnsupportedModelError, "of a kind"),
    "a base of 1": ({"x.rope.freq_base": 1.0}, ModelFileError, "its rope base is 1"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_scaling_that_cannot_be_is_refused(name: str) -> None:
    changes, error, message = BROKEN[name]
    with pytest.raises(error, match=message):
        read_rope(Metadata(YARN | changes, "x.gguf"), "x", 32)
