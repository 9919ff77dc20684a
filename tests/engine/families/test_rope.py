"""Scaled rotary positions: yarn by its own formulas in float64, and what makes no sense is refused."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.errors import ModelFileError, UnsupportedModelError
from engine.families.rope import read_rope
from engine.weights.files.metadata import Metadata

YARN: dict[str, object] = {
    "x.rope.freq_base": 10000.0,
    "x.rope.scaling.type": "yarn",
    "x.rope.scaling.factor": 8.0,
    "x.rope.scaling.original_context_length": 4096,
}


class Weights:
    """A loader of a file with divisors of frequencies, or without."""

    def __init__(self, divisors: NDArray[np.float32] | None = None) -> None:
        self._divisors = divisors

    def has(self, name: str) -> bool:
        return self._divisors is not None

    def vector(self, name: str, length: int) -> NDArray[np.float32]:
        assert name == "rope_freqs.weight" and self._divisors is not None and len(self._divisors) == length
        return self._divisors


def table(
    values: Mapping[str, object], dimensions: int, positions: int, divisors: NDArray[np.float32] | None = None
) -> np.ndarray:
    rope = read_rope(Metadata(values, "x.gguf"), "x", dimensions)
    return rope.table(Weights(divisors), positions).reshape(positions, -1, 2)  # type: ignore[arg-type]


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


def test_the_pairs_of_yarn_do_not_hang_on_the_machines_logarithm(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = table(YARN, 64, 9)
    monkeypatch.setattr("math.log", lambda value: 0.0)
    assert np.array_equal(table(YARN, 64, 9), expected)


def test_linear_scaling_divides_positions() -> None:
    linear = {"x.rope.scaling.type": "linear", "x.rope.scaling.factor": 4.0}
    assert np.array_equal(table(linear, 32, 81)[::4], table({}, 32, 21))


@pytest.mark.parametrize(
    "values",
    [
        {"x.rope.scaling.factor": 4.0},
        {"x.rope.scale_linear": 4.0},
        {"x.rope.scale_linear": 4.0, "x.rope.scaling.type": "linear"},
        {"x.rope.scale_linear": 2.0, "x.rope.scaling.factor": 4.0},
    ],
)
def test_a_factor_without_a_type_and_under_its_old_name_is_a_linear_scaling(values: dict[str, object]) -> None:
    """As llama.cpp means these keys; the new name wins."""
    linear = {"x.rope.scaling.type": "linear", "x.rope.scaling.factor": 4.0}
    assert np.array_equal(table(values, 32, 20), table(linear, 32, 20))


@pytest.mark.parametrize(
    "values",
    [
        {"x.rope.scaling.type": "none", "x.rope.scaling.factor": 4.0},
        {"x.rope.scaling.factor": 0.0},
        {"x.rope.scale_linear": 1.0},
    ],
)
def test_a_factor_of_no_scaling_changes_nothing(values: dict[str, object]) -> None:
    assert np.array_equal(table(values, 32, 20), table({}, 32, 20))


@pytest.mark.parametrize("kind", ["none", "linear"])
def test_the_factor_of_attention_counts_whatever_the_type(kind: str) -> None:
    """As in llama.cpp, which multiplies cosines and sines of every layer by it."""
    found = table({"x.rope.scaling.type": kind, "x.rope.scaling.attn_factor": 0.5}, 32, 20)
    assert np.allclose(found, table({}, 32, 20) * 0.5, atol=1e-7)


def test_divisors_of_frequencies_come_before_yarn() -> None:
    """As in llama.cpp: yarn stretches the divided frequencies, and chooses its pairs by the base alone."""
    divisors = np.linspace(1, 4, 16, dtype=np.float32)
    found, pairs = table(YARN, 32, 10, divisors), np.arange(16)
    own = 10000.0 ** (-pairs / 16) / divisors

    def place(turns: float) -> float:
        return 16 * math.log(4096 / (turns * 2 * math.pi)) / math.log(10000.0)

    low, high = math.floor(place(32)), math.ceil(place(1))
    stretched = np.clip((pairs - low) / (high - low), 0, 1)
    angles = np.arange(10)[:, None] * (own * (1 - stretched) + own / 8 * stretched)
    assert np.allclose(found[..., 0], (0.1 * math.log(8) + 1) * np.cos(angles), atol=1e-6)
    assert not np.allclose(found, table(YARN, 32, 10), atol=1e-3)


def test_a_magnitude_that_says_the_usual_is_read() -> None:
    usual = {"x.rope.scaling.yarn_attn_factor": float(np.float32(0.1 * math.log(8) + 1))}
    assert np.array_equal(table(YARN | usual, 32, 20), table(YARN, 32, 20))


BROKEN: dict[str, tuple[dict[str, object], type[Exception], str]] = {
    "another kind": ({"x.rope.scaling.type": "longrope"}, UnsupportedModelError, "by 'longrope'"),
    "no factor": ({"x.rope.scaling.factor": None}, ModelFileError, r"no metadata key 'x\.rope\.scaling\.factor'"),
    "a factor below 1": ({"x.rope.scaling.factor": 0.5}, ModelFileError, "yarn scaling is 0.5"),
    "a negative beta": ({"x.rope.scaling.yarn_beta_slow": -1.0}, ModelFileError, "yarn_beta_slow' is not above 0"),
    "a magnitude of its own": ({"x.rope.scaling.yarn_attn_factor": 1.0}, UnsupportedModelError, "understand diff"),
    "a tiny base": ({"x.rope.freq_base": 1e-38}, ModelFileError, "freq_base' is not above 0"),
    "a base below 1": ({"x.rope.freq_base": 1e-3}, ModelFileError, r"freq_base' is 0\.001, which is no base"),
    "an endless base": ({"x.rope.freq_base": 1e30}, ModelFileError, "freq_base' is not at most 1e"),
    "no context": ({"x.rope.scaling.original_context_length": 0}, ModelFileError, "not from 1"),
    "deepseek's multiplier": ({"x.rope.scaling.yarn_log_multiplier": 0.1}, UnsupportedModelError, "of a kind"),
    "a base of 1": ({"x.rope.freq_base": 1.0}, ModelFileError, "freq_base' is 1.0, which is no base"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_scaling_that_cannot_be_is_refused(name: str) -> None:
    changes, error, message = BROKEN[name]
    with pytest.raises(error, match=message):
        read_rope(Metadata(YARN | changes, "x.gguf"), "x", 32)
