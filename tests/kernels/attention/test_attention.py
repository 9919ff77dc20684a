"""Attention against its twin; and a row's bits depend neither on its tile, nor on its neighbours, nor on old memory."""

import numpy as np
import pytest

from kernels.attention.attention import ATTENTION, attention_kernel, rows_per_tile, scratch_floats
from kernels.attention.kv_cache import BLOCK_TOKENS, F16, KV_TYPES, KvType
from kernels.build.jit import address
from kernels.run.program import Program
from kernels.simd.tiers import TIERS_BY_NAME
from tests.kernels import reference
from tests.kernels.attention.sequences import Cache, Step, plan_for, random_numbers, step_of
from tests.kernels.ops import Float32, run_program, same_bits

# The others are like one of these. The kernels name no instruction: LLVM makes any tier's vectors run anywhere.
TIERS = ("generic", "avx2", "avx512")
TYPES = tuple(KV_TYPES.values())
DIM = 16
# Four sequences in shuffled blocks: a whole prompt over four blocks, a chunk, and one row each of two others.
SEQUENCES = [(0, 200, [7, 2, 9, 4]), (57, 21, [3, 0]), (63, 1, [5]), (128, 1, [8, 1, 6])]
SHAPES = [(4, 4), (4, 2), (6, 2), (16, 1)]  # (heads, KV heads): groups of 1, 2, 3 and 16


def attend(
    step: Step, query: Float32, cache: Cache, tier: str = TIERS[0], threads: int = 1, window: int = 0
) -> Float32:
    """Run the op on memory full of what is no number."""
    heads, kv_heads, dim = query.shape[1], cache.keys.shape[1], query.shape[2]
    group, kv_type = heads // kv_heads, cache.kv_type
    scratch = np.full((threads, scratch_floats(group, dim)), np.nan, np.float32)
    partials = np.full(plan_for(heads, kv_heads, dim).partial_floats, np.nan, np.float32)
    counters, output = np.zeros(len(query) * kv_heads, np.int64), np.full(query.shape, np.nan, np.float32)
    (record, group_record, keep), program = step.records(), Program()
    program.emit(
        ATTENTION,
        address(attention_kernel(kv_type.number, TIERS_BY_NAME[tier].number)),
        step=record.ctypes.data,
        group=group_record.ctypes.data,
        query=query.ctypes.data,
        output=output.ctypes.data,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        window=window,
        keys=cache.packed_keys.ctypes.data,
        values=cache.packed_values.ctypes.data,
        block_bytes=kv_type.block_bytes(dim),
        scratch=scratch.ctypes.data,
        scratch_floats=scratch.shape[1],
        partials=partials.ctypes.data,
        counters=counters.ctypes.data,
    )
    run_program(program.finish(), threads)
    assert keep is not None and not counters.any()
    return output


def inputs(heads: int, kv_heads: int, kv_type: KvType = F16, dim: int = DIM) -> tuple[Step, Float32, Cache]:
    step = step_of(SEQUENCES, plan_for(heads, kv_heads, dim))
    query = np.random.default_rng(heads).standard_normal((len(step.positions), heads, dim)).astype(np.float32)
    return step, query, Cache.of(kv_type, *random_numbers(10, kv_heads, dim))


def alone(step: Step, query: Float32, cache: Cache, tier: str = TIERS[0], window: int = 0) -> Float32:
    """Every row in a step of its own."""
    rows = range(len(query))
    return np.concatenate([attend(step.alone(row), query[row : row + 1], cache, tier, window=window) for row in rows])


def exact(step: Step, query: Float32, cache: Cache, window: int = 0) -> np.ndarray:
    return reference.attention(query, cache.keys, cache.values, step.positions, step.tables, window)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("kv_type", TYPES)
@pytest.mark.parametrize(("heads", "kv_heads"), SHAPES)
def test_rows_are_near_the_slow_twin(heads: int, kv_heads: int, kv_type: KvType, tier: str) -> None:
    step, query, cache = inputs(heads, kv_heads, kv_type)
    np.testing.assert_allclose(attend(step, query, cache, tier), exact(step, query, cache), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kv_type", TYPES)
@pytest.mark.parametrize("dim", [48, 64, 80, 128, 256])
def test_any_multiple_of_16_is_a_head(dim: int, kv_type: KvType) -> None:
    step, query, cache = inputs(5, 1, kv_type, dim)
    query /= np.float32(np.sqrt(dim))
    results = [attend(step, query, cache, tier) for tier in TIERS]
    np.testing.assert_allclose(results[0], exact(step, query, cache), rtol=0, atol=1e-5)
    assert all(same_bits(result, results[0]) for result in results)


@pytest.mark.parametrize("scale", [1e-3, 30.0, 1e3])
def test_flat_and_sharp_distributions_are_near_the_slow_twin(scale: float) -> None:
    step, query, cache = inputs(4, 2)
    query *= np.float32(scale)
    error = np.abs(attend(step, query, cache) - exact(step, query, cache)).max()
    assert error < 1e-5 * max(1.0, scale)  # a score's rounding grows with the score


@pytest.mark.parametrize("window", [1, 5, 16, 40, 64, 100, 129, 500])
def test_a_window_shows_the_last_tokens_only(window: int) -> None:
    step, query, cache = inputs(6, 2)
    result = attend(step, query, cache, window=window)
    np.testing.assert_allclose(result, exact(step, query, cache, window), rtol=0, atol=1e-5)
    assert same_bits(alone(step, query, cache, window=window), result)
    assert all(same_bits(attend(step, query, cache, tier, window=window), result) for tier in TIERS)


def test_a_window_as_long_as_the_sequence_changes_no_bit() -> None:
    step, query, cache = inputs(4, 2)
    assert same_bits(attend(step, query, cache, window=200), attend(step, query, cache))


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("kv_type", TYPES)
@pytest.mark.parametrize(("heads", "kv_heads"), SHAPES)
def test_a_row_has_the_same_bits_alone_and_in_a_tile(heads: int, kv_heads: int, kv_type: KvType, tier: str) -> None:
    step, query, cache = inputs(heads, kv_heads, kv_type)
    assert same_bits(attend(step, query, cache, tier), alone(step, query, cache, tier))


@pytest.mark.parametrize("kv_type", TYPES)
@pytest.mark.parametrize(("heads", "kv_heads"), SHAPES)
def test_all_tiers_give_the_same_bits(heads: int, kv_heads: int, kv_type: KvType) -> None:
    step, query, cache = inputs(heads, kv_heads, kv_type)
    results = [attend(step, query, cache, tier) for tier in TIERS]
    assert all(same_bits(result, results[0]) for result in results)


@pytest.mark.parametrize("kv_type", TYPES)
@pytest.mark.parametrize("window", [0, 70])
@pytest.mark.parametrize("threads", [2, 3])
def test_split_tiles_and_threads_change_no_bit(threads: int, window: int, kv_type: KvType) -> None:
    _, query, cache = inputs(4, 2, kv_type)
    for sequences in (SEQUENCES, [(250, 3, [7, 2, 9, 4])], [(255, 1, [7, 2, 9, 4]), (190, 1, [3, 0, 6])]):
        whole = step_of(sequences, plan_for(4, 2, DIM))
        split = step_of(sequences, plan_for(4, 2, DIM, threads))
        assert (whole.parts["parts"] == 1).all() and (split.parts["parts"] > 1).any() == (sequences is not SEQUENCES)
        rows = query[: len(whole.positions)]
        expected = attend(whole, rows, cache, window=window)
        for _ in range(10):
            assert same_bits(attend(split, rows, cache, threads=threads, window=window), expected)


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("window", [1, 40, 64, 65, 150, 200])
def test_parts_of_what_a_window_shows_give_the_same_bits(threads: int, window: int) -> None:
    _, query, cache = inputs(4, 2)
    table = [7, 2, 9, 4]
    for sequences in (SEQUENCES, [(130, 70, table)], [(250, 3, table)], [(255, 1, table), (190, 1, [3, 0, 6])]):
        whole, plan = step_of(sequences, plan_for(4, 2, DIM)), plan_for(4, 2, DIM, threads, window)
        seen = step_of(sequences, plan)
        assert (seen.parts["first_block"] >= (whole.positions[seen.parts["first_row"]] + 1 - window) // 64).all()
        rows = query[: len(whole.positions)]
        expected = attend(whole, rows, cache, window=window)
        assert same_bits(attend(seen, rows, cache, threads=threads, window=window), expected)


@pytest.mark.parametrize("kv_type", TYPES)
@pytest.mark.parametrize("window", [1, 64, 70])
def test_blocks_before_the_window_of_all_rows_are_never_read(window: int, kv_type: KvType) -> None:
    _, query, cache = inputs(4, 2, kv_type)
    keys, values = random_numbers(10, 2, DIM)
    keys[5], values[5] = np.nan, np.nan
    spoilt, plan = Cache.of(kv_type, keys, values), plan_for(4, 2, DIM, window=window)
    for position, count in ((200, 5), (255, 1), (192, 1), (134, 100)):
        first = max(0, position + 1 - window) // BLOCK_TOKENS
        table = [5] * first + [7, 2, 9, 4][first:]
        expected = attend(step_of([(position, count, [7, 2, 9, 4])], plan), query[:count], cache, window=window)
        result = attend(step_of([(position, count, table)], plan), query[:count], spoilt, window=window)
        assert same_bits(result, expected)


def test_parts_run_by_one_thread_give_the_bits_of_the_whole() -> None:
    _, query, cache = inputs(6, 2)
    split = step_of([(200, 20, [7, 2, 9, 4])], plan_for(6, 2, DIM, threads=8))
    assert (split.parts["parts"] == 2).all()
    whole = step_of([(200, 20, [7, 2, 9, 4])], plan_for(6, 2, DIM))
    assert same_bits(attend(split, query[:20], cache), attend(whole, query[:20], cache))


@pytest.mark.parametrize("chunk", [1, 3, 7, 64, 199])
def test_chunks_change_no_bit(chunk: int) -> None:
    step, query, cache = inputs(6, 2)
    table, plan = SEQUENCES[0][2], plan_for(6, 2, DIM)
    parts = [
        attend(step_of([(at, min(chunk, 200 - at), table)], plan), query[at : min(at + chunk, 200)], cache)
        for at in range(0, 200, chunk)
    ]
    assert same_bits(np.concatenate(parts), attend(step, query, cache)[:200])


@pytest.mark.parametrize("kv_type", TYPES)
@pytest.mark.parametrize("window", [0, 3])
def test_zeros_of_either_sign_and_tiny_values_keep_their_bits_in_tiles(window: int, kv_type: KvType) -> None:
    step, query, _ = inputs(4, 4)
    keys, values = random_numbers(10, 4, DIM)
    values[:, :, :20] = -0.0
    values[:, :, 20:30] = np.float32(-1e-45)
    values[:, :, 30, ::2] = 0
    keys[:, :, 31] *= 100  # weights that underflow
    values[:, :, 31] *= np.float32(-1e-38)
    cache = Cache.of(kv_type, keys, values)
    for tier in TIERS:
        assert same_bits(attend(step, query, cache, tier, window=window), alone(step, query, cache, tier, window))


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("kv_type", TYPES)
@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf, 3e38])
def test_memory_beyond_a_sequence_is_never_seen(garbage: float, kv_type: KvType, tier: str) -> None:
    step, query, _ = inputs(4, 2)
    keys, values = random_numbers(10, 2, DIM)
    expected = attend(step, query, Cache.of(kv_type, keys, values), tier)
    for first, count, table in SEQUENCES:
        after = (first + count - 1) % BLOCK_TOKENS + 1
        keys[table[-1], :, after:], values[table[-1], :, after:] = garbage, garbage
    assert same_bits(attend(step, query, Cache.of(kv_type, keys, values), tier), expected)


@pytest.mark.parametrize("kv_type", TYPES)
@pytest.mark.parametrize("garbage", [np.nan, np.inf])
def test_a_token_that_is_no_number_spoils_the_rows_that_see_it_and_no_other(garbage: float, kv_type: KvType) -> None:
    step, query, cache = inputs(4, 2, kv_type)
    window, spoilt = 30, 150
    expected = attend(step, query, cache, window=window)[:200]
    keys, values = random_numbers(10, 2, DIM)
    block, place = SEQUENCES[0][2][spoilt // BLOCK_TOKENS], spoilt % BLOCK_TOKENS
    keys[block, :, place], values[block, :, place] = garbage, garbage
    result = attend(step, query, Cache.of(kv_type, keys, values), window=window)[:200]
    seen = np.zeros(200, bool)
    seen[spoilt : spoilt + window] = True
    assert same_bits(result[~seen], expected[~seen])
    assert not np.isfinite(result[seen]).any()


def test_physical_blocks_may_stand_anywhere() -> None:
    step, query, cache = inputs(4, 2)
    places, (keys, values) = np.random.default_rng(1).permutation(10), random_numbers(10, 2, DIM)
    new_keys, new_values = np.empty_like(keys), np.empty_like(values)
    new_keys[places], new_values[places] = keys, values
    result = attend(step.moved(places), query, Cache.of(F16, new_keys, new_values))
    assert same_bits(result, attend(step, query, cache))


@pytest.mark.parametrize("group", range(1, 17))
def test_a_full_tile_has_up_to_24_lanes(group: int) -> None:
    assert 24 - group < group * rows_per_tile(group) <= 24
