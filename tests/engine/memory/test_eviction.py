"""What was used longest ago goes first, unless it costs much more to make again."""

import random

import pytest

from engine.memory.blocks import EvictionQueue


def popped(queue: EvictionQueue[str]) -> str:
    return "".join(queue.pop() for _ in range(len(queue)))


def test_of_equal_cost_the_oldest_goes_first() -> None:
    queue = EvictionQueue[str]()
    for item in "abc":
        queue.add(item, 1)
    queue.add("a", 1)
    assert popped(queue) == "bca"


def test_what_costs_more_stays_longer_but_not_for_ever() -> None:
    queue = EvictionQueue[str]()
    queue.add("x", 3.5)
    order = []
    for item in "abcdef":
        queue.add(item, 1)
        order.append(queue.pop())
    assert order == ["a", "b", "c", "x", "d", "e"]


def test_what_is_discarded_does_not_come_up() -> None:
    queue = EvictionQueue[str]()
    queue.add("a", 1)
    queue.add("b", 2)
    queue.discard("a")
    queue.discard("unknown")
    assert "a" not in queue and popped(queue) == "b"
    with pytest.raises(IndexError):
        queue.pop()


def test_an_earlier_use_counts_from_then() -> None:
    queue = EvictionQueue[str]()
    queue.add("a", 5)
    queue.pop()
    queue.add("new", 1)
    queue.add("old", 2, used_at=0)
    assert popped(queue) == "oldnew"


def test_outdated_places_do_not_pile_up() -> None:
    queue, rng = EvictionQueue[int](), random.Random(1)
    for _ in range(5000):
        queue.add(rng.randrange(10), rng.random())
    assert len(queue) == 10 and len(queue._heap) <= 2 * 10 + 64
    ranks = [(queue.place(item), item) for item in range(10)]
    assert [queue.pop() for _ in range(10)] == [item for _, item in sorted(ranks)]
