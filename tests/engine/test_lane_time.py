"""How long one has to wait for a lane."""

import pytest

from engine.service import LaneTime


def test_there_is_no_wait_while_lanes_are_free_or_before_anything_was_measured() -> None:
    time = LaneTime(lanes=4)
    assert time.wait(before=100) == 0
    time.note(8.0)
    assert time.wait(before=0) == time.wait(before=3) == 0


def test_each_request_before_takes_its_share_of_the_lanes() -> None:
    time = LaneTime(lanes=4)
    time.note(8.0)
    assert [time.wait(before) for before in (4, 5, 11)] == [2.0, 4.0, 16.0]


def test_the_mean_follows_the_newest_requests() -> None:
    time = LaneTime(lanes=1)
    time.note(1.0)
    time.note(2.0)
    assert time.wait(before=1) == pytest.approx(1.2)
    for _ in range(40):
        time.note(5.0)
    assert time.wait(before=1) == pytest.approx(5.0, rel=0.01)
