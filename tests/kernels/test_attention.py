"""Attention against its twin; and a row's bits depend neither on its tile, nor on its neighbours, nor on old memory."""

import numpy as np
import pytest

from kernels import reference
from kernels.attention import ATTENTION, attention_kernel, rows_per_tile, scratch_floats, tile_functions
from kernels.cpu import TIER_NUMBERS
from kernels.dot import DOTS_BY_TIER
from kernels.jit import address
from kernels.kv_cache import BLOCK_TOKENS
from kernels.program import Program
from tests.kernels.ops import TIERS, Float32, run_program, same_bits
from tests.kernels.sequences import Step, random_cache, step_of

DIM = 16
# Three sequences in shuffled blocks: a whole prompt over four blocks, a chunk, and one row each of two others.
PARTS = [(0, 200, [7, 2, 9, 4]), (57, 21, [3, 0]), (63, 1, [5]), (128, 1, [8, 1, 6])]
SHAPES = [(4, 4), (4, 2), (6, 2)]  # (heads, KV heads): groups of 1, 2 and 3


def attend(step: Step, query: Float32, keys: Float32, values: Float32, tier: str, threads: int = 1) -> Float32:
    heads, kv_heads = query.shape[1], keys.shape[1]
    floats = -(-scratch_floats(heads // kv_heads, DIM) // 16) * 16
    scratch, output = np.full((threads, floats), np.nan, np.float32), np.full(query.shape, np.nan, np.float32)
    record, keep = step.record()
    program = Program()
    program.emit(
        ATTENTION,
        address(attention_kernel()),
        step=record.ctypes.data,
        query=query.ctypes.data,
        output=output.ctypes.data,
        heads=heads,
        kv_heads=kv_heads,
        keys=keys.ctypes.data,
        values=values.ctypes.data,
        scratch=scratch.ctypes.data,
        scratch_floats=floats,
        **tile_functions(heads // kv_heads, DIM, DOTS_BY_TIER[TIER_NUMBERS[tier]].rows),
    )
    run_program(program.finish(), threads)
    assert keep is not None
    return output


def inputs(heads: int, kv_heads: int) -> tuple[Step, Float32, Float32, Float32]:
    step = step_of(PARTS, rows_per_tile(heads // kv_heads))
    query = np.random.default_rng(heads).standard_normal((len(step.positions), heads, DIM)).astype(np.float32)
    return step, query, *random_cache(10, kv_heads, DIM)


def alone(step: Step, query: Float32, keys: Float32, values: Float32, tier: str) -> Float32:
    """Every row in a step of its own."""
    rows = [slice(row, row + 1) for row in range(len(query))]
    steps = [Step(step.positions[row], step.tables[row], np.array([[0, 1]])) for row in rows]
    results = [attend(one, query[row], keys, values, tier) for one, row in zip(steps, rows, strict=True)]
    return np.concatenate(results)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("heads", "kv_heads"), SHAPES)
def test_rows_are_near_the_slow_twin(heads: int, kv_heads: int, tier: str) -> None:
    step, query, keys, values = inputs(heads, kv_heads)
    exact = reference.attention(query, keys, values, step.positions, step.tables)
    np.testing.assert_allclose(attend(step, query, keys, values, tier), exact, rtol=0, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-3, 30.0, 1e3])
def test_flat_and_sharp_distributions_are_near_the_slow_twin(scale: float) -> None:
    step, query, keys, values = inputs(4, 2)
    query *= np.float32(scale)
    exact = reference.attention(query, keys, values, step.positions, step.tables)
    error = np.abs(attend(step, query, keys, values, "generic") - exact).max()
    assert error < 1e-5 * max(1.0, scale)  # a score's rounding grows with the score


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("heads", "kv_heads"), SHAPES)
def test_a_row_has_the_same_bits_alone_and_in_a_tile(heads: int, kv_heads: int, tier: str) -> None:
    step, query, keys, values = inputs(heads, kv_heads)
    assert same_bits(attend(step, query, keys, values, tier), alone(step, query, keys, values, tier))


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(threads: int) -> None:
    step, query, keys, values = inputs(4, 2)
    one = attend(step, query, keys, values, TIERS[0])
    assert same_bits(attend(step, query, keys, values, TIERS[0], threads), one)


@pytest.mark.parametrize(("heads", "kv_heads"), SHAPES)
def test_all_tiers_give_the_same_bits(heads: int, kv_heads: int) -> None:
    step, query, keys, values = inputs(heads, kv_heads)
    results = [attend(step, query, keys, values, tier) for tier in TIERS]
    assert all(same_bits(result, results[0]) for result in results)


@pytest.mark.parametrize("tier", TIERS)
def test_zeros_of_either_sign_and_tiny_values_keep_their_bits_in_tiles(tier: str) -> None:
    step, query, keys, values = inputs(4, 4)
    values[:, 0] = -0.0
    values[:, 1] = np.float32(-1e-45)
    values[:, 2, ::2] = 0
    keys[:, 3] *= 100  # weights that underflow
    values[:, 3] *= np.float32(-1e-38)
    assert same_bits(attend(step, query, keys, values, tier), alone(step, query, keys, values, tier))


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf, 3e38])
def test_memory_beyond_a_sequence_is_never_seen(garbage: float, tier: str) -> None:
    step, query, keys, values = inputs(4, 2)
    expected = attend(step, query, keys, values, tier)
    for first, count, table in PARTS:
        last = (first + count - 1) % BLOCK_TOKENS
        keys[table[-1], ..., last + 1 :] = garbage
        values[table[-1], :, last + 1 :] = garbage
    assert same_bits(attend(step, query, keys, values, tier), expected)


def test_physical_blocks_may_stand_anywhere() -> None:
    step, query, keys, values = inputs(4, 2)
    moved = np.random.default_rng(1).permutation(10)
    elsewhere = Step(step.positions, moved[step.tables].astype(np.int32), step.tiles)
    new_keys, new_values = np.empty_like(keys), np.empty_like(values)
    new_keys[moved], new_values[moved] = keys, values
    assert same_bits(
        attend(elsewhere, query, new_keys, new_values, "generic"), attend(step, query, keys, values, "generic")
    )
