"""The pool counts references, and tells what is cached from what is free."""

import pytest

from engine.memory.blocks import BlockPool


def test_blocks_are_distinct_and_come_back() -> None:
    pool = BlockPool(5)
    blocks = [pool.take() for _ in range(5)]
    assert sorted(blocks) == [0, 1, 2, 3, 4] and pool.free_blocks == 0
    with pytest.raises(IndexError):
        pool.take()
    for block in blocks:
        assert not pool.release(block)
    assert pool.free_blocks == pool.available_blocks == 5


def test_a_shared_block_is_free_when_the_last_reference_goes() -> None:
    pool = BlockPool(2)
    block = pool.take()
    pool.share(block)
    assert not pool.release(block) and pool.free_blocks == 1
    assert not pool.release(block) and pool.free_blocks == 2


def test_a_kept_block_is_cached_until_it_is_dropped() -> None:
    pool = BlockPool(2)
    block = pool.take()
    pool.keep(block)
    assert pool.release(block)
    assert (pool.free_blocks, pool.cached_blocks, pool.available_blocks) == (1, 1, 2)
    pool.share(block)
    assert (pool.cached_blocks, pool.references(block)) == (0, 1)
    pool.release(block)
    pool.drop(block)
    assert (pool.free_blocks, pool.cached_blocks) == (2, 0)


def test_a_block_dropped_while_in_use_is_free_afterwards() -> None:
    pool = BlockPool(1)
    block = pool.take()
    pool.keep(block)
    pool.drop(block)
    assert pool.free_blocks == 0
    assert not pool.release(block) and pool.free_blocks == 1


def test_what_nobody_refers_to_can_be_neither_released_nor_shared() -> None:
    pool = BlockPool(1)
    block = pool.take()
    pool.release(block)
    with pytest.raises(AssertionError, match="too often"):
        pool.release(block)
    with pytest.raises(AssertionError, match="holds nothing"):
        pool.share(block)
