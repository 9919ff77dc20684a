"""When thinking is over its budget, what is forced, and when it is not."""

from engine.request import Thinking
from engine.sampling.token_chooser import ThinkingBudget

OPEN, CLOSE = 90, (91, 92, 91, 93)


def forced_run(thinking: Thinking, said: list[int], count: int) -> list[int]:
    """The tokens of an answer that says `said` where nothing is forced."""
    budget, own, answer = ThinkingBudget(thinking), iter(said), list[int]()
    while len(answer) < count:
        forced = budget.forced
        answer.append(next(own) if forced is None else forced)
        budget.accept(answer[-1])
    return answer


def test_the_end_is_forced_token_after_token_once_the_budget_is_used() -> None:
    thinking = Thinking(inside=True, start_id=None, end_ids=CLOSE, budget=3)
    assert forced_run(thinking, [1, 2, 3, 4, 5], 9) == [1, 2, 3, *CLOSE, 4, 5]


def test_a_budget_of_zero_ends_thinking_at_once() -> None:
    thinking = Thinking(inside=True, start_id=OPEN, end_ids=(91,), budget=0)
    assert forced_run(thinking, [1, OPEN, 2], 5) == [91, 1, OPEN, 91, 2]


def test_thinking_that_ends_in_time_is_left_alone() -> None:
    thinking = Thinking(inside=False, start_id=OPEN, end_ids=CLOSE, budget=4)
    said = [OPEN, *CLOSE, *range(20)]
    assert forced_run(thinking, said, len(said)) == said


def test_tokens_outside_of_thinking_are_not_counted() -> None:
    thinking = Thinking(inside=False, start_id=OPEN, end_ids=(91,), budget=2)
    assert forced_run(thinking, [1, 2, 3, 4, OPEN, 5, 6, 7], 9) == [1, 2, 3, 4, OPEN, 5, 6, 91, 7]


def test_thinking_begun_again_has_what_is_left_of_the_budget() -> None:
    thinking = Thinking(inside=True, start_id=OPEN, end_ids=(91,), budget=4)
    assert forced_run(thinking, [1, 2, 91, 3, OPEN, 4, 5], 8) == [1, 2, 91, 3, OPEN, 4, 91, 5]


def test_an_end_that_the_model_has_begun_is_completed_and_not_begun_again() -> None:
    thinking = Thinking(inside=True, start_id=None, end_ids=CLOSE, budget=3)
    assert forced_run(thinking, [1, 91, 92, 5], 6) == [1, 91, 92, 91, 93, 5]


def test_an_end_that_overlaps_itself_is_found() -> None:
    """91 92 91 92: the second 91 92 may begin the end anew."""
    thinking = Thinking(inside=True, start_id=None, end_ids=CLOSE, budget=100)
    budget = ThinkingBudget(thinking)
    for token in (91, 92, 91, 92, 91, 93):
        assert budget.forced is None
        budget.accept(token)
    assert not budget._inside


def test_without_a_budget_nothing_is_forced() -> None:
    thinking = Thinking(inside=True, start_id=None, end_ids=CLOSE)
    assert forced_run(thinking, list(range(50)), 50) == list(range(50))
