"""Rotary tables against the math library, which is right to the last bit or nearly so."""

import math

import numpy as np
import pytest

from kernels.attention.angles import cosine_and_sine, rotary_frequencies, rotary_table


@pytest.mark.parametrize("base", [10_000.0, 100_000.0, 500_000.0, 1_234.5])
def test_frequencies_are_powers_of_the_base(base: float) -> None:
    expected = [base ** (-i / 24) for i in range(24)]
    assert np.abs(rotary_frequencies(base, 24) / expected - 1).max() < 4e-15


def test_cosines_and_sines_agree_with_the_math_library() -> None:
    generator = np.random.default_rng(0)
    angles = np.concatenate(
        [generator.uniform(0, 7, 3000), generator.uniform(0, 1e6, 3000), np.arange(20) * math.pi / 4]
    )
    cosine, sine = cosine_and_sine(angles)
    assert np.abs(cosine - [math.cos(angle) for angle in angles]).max() < 1e-15
    assert np.abs(sine - [math.sin(angle) for angle in angles]).max() < 1e-15


def test_a_long_table_is_made_in_parts_that_join() -> None:
    table = rotary_table(np.array([0.5]), 10_000)
    turned = np.stack(cosine_and_sine((np.arange(10_000) * 0.5).astype(np.float64)), axis=-1)
    assert np.array_equal(table, turned.astype(np.float32))


def test_a_table_starts_unturned_and_holds_pairs_side_by_side() -> None:
    table = rotary_table(np.array([1.0, 0.25]), 9)
    assert table.shape == (9, 4)
    assert table[0].tolist() == [1, 0, 1, 0]
    assert table[8].tolist() == np.array([math.cos(8), math.sin(8), math.cos(2), math.sin(2)], np.float32).tolist()
