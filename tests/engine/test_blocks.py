"""The pool gives each block to one owner, and gets all of them back."""

import random

import pytest

from engine.blocks import BlockPool


def test_blocks_are_distinct_and_come_back() -> None:
    pool = BlockPool(5, block_tokens=16)
    first, second = pool.try_allocate(2), pool.try_allocate(3)
    assert first is not None and second is not None
    assert sorted(first + second) == [0, 1, 2, 3, 4]
    assert pool.free_blocks == 0
    pool.free(first)
    pool.free(second)
    assert pool.free_blocks == 5


def test_a_pool_with_too_few_blocks_gives_none() -> None:
    pool = BlockPool(3, block_tokens=16)
    assert pool.try_allocate(4) is None
    assert pool.free_blocks == 3
    assert pool.try_allocate(0) == []


def test_a_block_cannot_be_freed_twice() -> None:
    pool = BlockPool(3, block_tokens=16)
    blocks = pool.try_allocate(1)
    assert blocks is not None
    pool.free(blocks)
    with pytest.raises(AssertionError, match="freed twice"):
        pool.free(blocks)


def test_tokens_round_up_to_blocks() -> None:
    pool = BlockPool(3, block_tokens=16)
    assert [pool.blocks_for(tokens) for tokens in (0, 1, 16, 17, 48)] == [0, 1, 1, 2, 3]
    assert pool.capacity_tokens == 48


def test_no_block_is_lost_or_shared_over_many_random_owners() -> None:
    rng = random.Random(1)
    pool, owners = BlockPool(40, block_tokens=4), list[list[int]]()
    for _ in range(2000):
        blocks = pool.try_allocate(rng.randrange(8))
        if blocks is not None:
            owners.append(blocks)
        if owners and rng.random() < 0.5:
            pool.free(owners.pop(rng.randrange(len(owners))))
        held = [block for owner in owners for block in owner]
        assert len(set(held)) == len(held) == 40 - pool.free_blocks
