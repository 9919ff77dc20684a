"""Stored responses: found by their owner alone, and dropped by count and by bytes."""

import orjson
import pytest

from server.api.responses.store import ResponseStore
from server.errors import UnknownResponseError

ITEMS = [{"id": "msg_1", "type": "message"}]


def response(name: str, text: str = "") -> dict[str, object]:
    return {"id": name, "output": [{"id": "msg_2", "text": text}]}


def test_a_response_is_kept_with_what_it_answered() -> None:
    store = ResponseStore()
    store.put("", response("resp_1"), ITEMS)
    kept = store.get("", "resp_1")
    assert orjson.loads(kept.response) == response("resp_1")
    assert [item["id"] for item in kept.conversation] == ["msg_1", "msg_2"]


def test_each_caller_sees_only_its_own() -> None:
    store = ResponseStore()
    store.put("one", response("resp_1"), ITEMS)
    for act in (store.get, store.delete):
        with pytest.raises(UnknownResponseError):
            act("other", "resp_1")
    store.get("one", "resp_1")


def test_the_least_recently_used_is_forgotten_beyond_the_count() -> None:
    store = ResponseStore(max_count=2)
    for name in ("a", "b"):
        store.put("", response(name), ITEMS)
    store.get("", "a")
    store.put("", response("c"), ITEMS)
    store.get("", "a")
    with pytest.raises(UnknownResponseError):
        store.get("", "b")


def test_bytes_are_bounded_and_counted_to_the_last() -> None:
    store = ResponseStore(max_bytes=1000)
    for index in range(50):
        store.put("", response(f"r{index}", "x" * 100), ITEMS)
        assert store.nbytes <= 1000
    assert 1 < len(store) < 10
    for index in range(50 - len(store), 50):
        store.delete("", f"r{index}")
    assert (len(store), store.nbytes) == (0, 0)


def test_what_is_larger_than_the_bound_is_not_kept() -> None:
    store = ResponseStore(max_bytes=100)
    store.put("", response("big", "x" * 200), ITEMS)
    assert (len(store), store.nbytes) == (0, 0)


def names_kept(store: ResponseStore, caller: str, names: list[str]) -> list[str]:
    kept = []
    for name in names:
        try:
            store.get(caller, name)
        except UnknownResponseError:
            continue
        kept.append(name)
    return kept


@pytest.mark.parametrize("bounds", [{"max_count": 10}, {"max_bytes": 1000}])
def test_a_caller_that_stores_much_forgets_its_own_and_not_anothers(bounds: dict[str, int]) -> None:
    store = ResponseStore(**bounds)
    modest = [f"m{index}" for index in range(3)]
    for name in modest:
        store.put("modest", response(name), ITEMS)
    for index in range(100):
        store.put("greedy", response(f"g{index}"), ITEMS)
    assert names_kept(store, "modest", modest) == modest
    assert "g99" in names_kept(store, "greedy", [f"g{index}" for index in range(100)])
    for index in range(100):
        store.put(f"another {index}", response("one"), ITEMS)  # a share for each of so many is less than three
    assert len(store) <= bounds.get("max_count", len(store)) and store.nbytes <= bounds.get("max_bytes", store.nbytes)
    assert names_kept(store, "another 99", ["one"]) == ["one"]


def test_a_caller_that_is_alone_may_use_all_until_others_come() -> None:
    store = ResponseStore(max_count=10)
    for index in range(10):
        store.put("first", response(f"f{index}"), ITEMS)
    for index in range(9):
        store.put("second", response(f"s{index}"), ITEMS)
    assert names_kept(store, "first", [f"f{index}" for index in range(10)]) == [f"f{index}" for index in range(5, 10)]
    assert len(names_kept(store, "second", [f"s{index}" for index in range(9)])) == 5


def test_what_is_larger_than_the_bound_costs_nobody_else_anything() -> None:
    store = ResponseStore(max_bytes=1000)
    store.put("modest", response("kept"), ITEMS)
    store.put("greedy", response("big", "x" * 2000), ITEMS)
    assert names_kept(store, "modest", ["kept"]) == ["kept"]
    assert names_kept(store, "greedy", ["big"]) == []
