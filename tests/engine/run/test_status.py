"""What counts as a step that hangs, and how long a request waits for a lane."""

import pytest

from engine.run.status import LEAST_SECONDS, MARGIN, LaneTime, StepWatch


def watch_of(*steps: tuple[float, int]) -> StepWatch:
    """A watch that has seen steps of so many seconds and rows, and is at time 0 again."""
    watch = StepWatch()
    for seconds, rows in steps:
        watch.begin(0, rows)
        watch.end(seconds)
    return watch


def test_the_first_step_is_not_judged() -> None:
    watch = StepWatch()
    watch.begin(0, 512)
    assert not watch.is_stuck(10**6)


def test_a_short_step_has_five_seconds() -> None:
    watch = watch_of((0.1, 1))
    watch.begin(0, 8)
    assert not watch.is_stuck(LEAST_SECONDS)
    assert watch.is_stuck(LEAST_SECONDS + 0.1)


def test_a_long_step_has_as_long_as_its_rows_may_take() -> None:
    watch = watch_of((0.5, 1), (5, 512))
    watch.begin(0, 512)
    assert not watch.is_stuck(MARGIN * 512 * 0.5)
    assert watch.is_stuck(MARGIN * 512 * 0.5 + 1)


def test_between_steps_nothing_hangs() -> None:
    watch = watch_of((0.1, 1))
    watch.begin(0, 0)
    assert not watch.is_stuck(10**6)


def test_a_step_that_ends_after_all_is_forgiven() -> None:
    watch = watch_of((0.1, 1))
    watch.begin(0, 1)
    assert watch.is_stuck(60)
    watch.end(60)
    assert not watch.is_stuck(61)


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
