"""The matmul op: the bits of its slow twin for every weight type, tier and number of rows, whoever shares the step."""

import numpy as np
import pytest

from kernels.matmul import gemv
from kernels.quant.weight_types import WEIGHT_TYPES
from tests.kernels import reference
from tests.kernels.ops import (
    CROSSOVERS,
    TIERS,
    float_tiles,
    hard_matrix,
    hard_rows,
    matmul,
    matmul_by,
    random_matrix,
    same_bits,
    wide,
)

ROW_COUNTS = (1, 2, 3, 4, 5, 8, 15, 64)


def random_rows(rows: int, columns: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("name", WEIGHT_TYPES)
def test_any_number_of_rows_gives_the_bits_of_the_slow_twin(name: str, tier: str) -> None:
    columns = wide(name, 5)
    raw = random_matrix(name, 37, columns)
    for rows in ROW_COUNTS:
        x = random_rows(rows, columns)
        assert same_bits(matmul(name, raw, x, tier), reference.matmul_in_order(WEIGHT_TYPES[name], raw, x)), rows


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("name", WEIGHT_TYPES)
def test_the_result_is_near_the_exact_one(name: str, tier: str) -> None:
    raw, x = random_matrix(name, 50, 512), random_rows(5, 512)
    exact = reference.matmul(WEIGHT_TYPES[name], raw, x)
    assert np.abs(matmul(name, raw, x, tier) - exact).max() < 2e-6 * np.abs(exact).max()


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("name", WEIGHT_TYPES)
def test_hard_weights_and_activations_give_the_bits_of_the_slow_twin(name: str, tier: str) -> None:
    raw, x = hard_matrix(name), hard_rows(wide(name, 3))
    assert same_bits(matmul(name, raw, x, tier), reference.matmul_in_order(WEIGHT_TYPES[name], raw, x))


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("name", WEIGHT_TYPES)
def test_the_largest_integers_do_not_overflow(name: str, tier: str) -> None:
    columns = wide(name, 2)
    raw = hard_matrix(name, 2)[6:12]  # all nibbles 0, 15 or 8; q8_0: -128, 127 and so on
    signs = np.stack([np.resize(pattern, columns) for pattern in ([1], [-1], [1, -1], [1, 1, -1, -1])])
    x = (127 * signs).astype(np.float32)
    x[1, 20], x[3, columns // 2 + 1 :] = 1e4, 0  # fine blocks
    assert same_bits(matmul(name, raw, x, tier), reference.matmul_in_order(WEIGHT_TYPES[name], raw, x))


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("name", WEIGHT_TYPES)
def test_a_row_does_not_depend_on_the_other_rows_nor_on_their_number(name: str, tier: str) -> None:
    columns = wide(name, 3)
    raw, x = random_matrix(name, 19, columns), random_rows(15, columns)
    alone = np.concatenate([matmul(name, raw, x[row : row + 1], tier) for row in range(15)])
    for rows in ROW_COUNTS[:7]:
        assert same_bits(matmul(name, raw, x[:rows], tier), alone[:rows])
    order = np.random.default_rng(5).permutation(15)
    assert same_bits(matmul(name, raw, x[order], tier), alone[order])
    x[1:] = hard_rows(columns)[1:]
    assert same_bits(matmul(name, raw, x, tier)[:1], alone[:1])


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("name", WEIGHT_TYPES)
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_is_seen_in_its_row_and_in_no_other(wrong: float, name: str, tier: str) -> None:
    columns = wide(name, 3)
    raw = random_matrix(name, 16, columns)
    right = matmul(name, raw, random_rows(3, columns), tier)
    for place in (0, 5, columns // 3 - 1, columns // 2, columns - 1):
        x = random_rows(3, columns)
        x[1, place] = wrong
        result = matmul(name, raw, x, tier)
        assert not np.isfinite(result[1]).any()
        assert same_bits(result[[0, 2]], right[[0, 2]])


@pytest.mark.parametrize("crossover", CROSSOVERS)
@pytest.mark.parametrize("name", [name for name, kind in WEIGHT_TYPES.items() if kind.takes_floats])
def test_the_crossover_to_tiles_of_16_changes_no_bit(name: str, crossover: int) -> None:
    """Of floats; int8 matrix tiles are emulated in test_cross_compiled.py."""
    raw, x = random_matrix(name, 37, 96), random_rows(101, 96)
    expected = reference.matmul_in_order(WEIGHT_TYPES[name], raw, x)
    for rows in CROSSOVERS[crossover]:
        result = matmul_by(float_tiles(name, TIERS[0]), name, raw, x[:rows], crossover=crossover)
        assert same_bits(result, expected[:rows]), rows


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("name", ["Q4_1", "Q8_0", "F16", "Q4_K"])
def test_the_residual_is_added_once(name: str, tier: str) -> None:
    columns = wide(name, 3)
    raw, x, residual = random_matrix(name, 33, columns), random_rows(7, columns), random_rows(7, 33, seed=8)
    product = matmul(name, raw, x, tier)
    assert same_bits(matmul(name, raw, x, tier, added_to=residual), residual + product)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("least_groups", [1, 2, 100])
@pytest.mark.parametrize("most_groups", [1, 3, 100])
def test_threads_and_the_size_of_their_tasks_change_nothing(threads: int, least_groups: int, most_groups: int) -> None:
    raw, x = random_matrix("Q4_1", 130, 96), random_rows(11, 96)
    for rows in (1, 8, 11):
        result = matmul(
            "Q4_1", raw, x[:rows], "generic", threads=threads, least_groups=least_groups, most_groups=most_groups
        )
        assert same_bits(result, reference.matmul_in_order(WEIGHT_TYPES["Q4_1"], raw, x[:rows])), rows


@pytest.mark.parametrize("threads", [1, 2, 16, 64])
@pytest.mark.parametrize(("least", "most"), [(1, 1), (1, 14), (3, 14), (7, 5), (3, 10_000)])
@pytest.mark.parametrize("groups", [1, 3, 32, 128, 2000])
def test_tasks_cover_a_matrix_once_and_get_smaller(groups: int, least: int, most: int, threads: int) -> None:
    sizes: list[int] = []
    while (bounds := gemv.groups_of(len(sizes), groups, threads, least, most))[0] < groups:
        assert bounds[0] == sum(sizes), "a task begins where the one before ends"
        sizes.append(bounds[1] - bounds[0])
    assert sum(sizes) == groups
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) <= max(least, min(most, groups // (2 * threads))), "no thread gets more than half its share"
    assert sizes[-1] <= least, "the last are small"


def test_tasks_are_bounded_by_their_bytes() -> None:
    assert gemv.task_bounds(100) == {"least_groups": 327, "most_groups": 2621}
    assert gemv.task_bounds(18_000) == {"least_groups": 1, "most_groups": 14}
    assert gemv.task_bounds(300_000) == {"least_groups": 1, "most_groups": 1}
