"""Guesses by look-up, and from the text that a request predicted."""

import random

import pytest

from engine.scheduling.speculation.drafters import (
    MOST_COMPARED,
    LookupDrafter,
    PredictionFollower,
    TextIndex,
    agreement,
)


def guess(tokens: list[int], most: int = 4) -> tuple[int, ...]:
    return LookupDrafter().guess(tokens, most).tokens


def test_what_followed_the_last_three_tokens_is_guessed() -> None:
    assert guess([1, 2, 3, 4, 5, 6, 7, 9, 2, 3, 4]) == (5, 6, 7, 9)


def test_two_tokens_are_looked_up_where_three_are_new() -> None:
    assert guess([1, 2, 3, 4, 5, 9, 2, 3], 2) == (4, 5)


def test_the_latest_occurrence_counts() -> None:
    assert guess([1, 2, 3, 7, 1, 2, 3, 8, 1, 2, 3], 1) == (8,)


@pytest.mark.parametrize("tokens", [[], [1], [1, 2], [1, 2, 3, 4, 5]])
def test_where_nothing_occurred_before_nothing_is_guessed(tokens: list[int]) -> None:
    assert guess(tokens) == ()


@pytest.mark.parametrize("period", [1, 2, 3])
def test_a_text_that_goes_round_is_guessed_to_go_on(period: int) -> None:
    text = [number % period for number in range(20)]
    assert guess(text, 7) == tuple(number % period for number in range(20, 27))


def test_a_text_is_read_in_parts_and_token_by_token_with_the_same_guesses() -> None:
    rng = random.Random(0)
    text = [rng.randrange(4) for _ in range(200)]
    slow, fast = TextIndex(), TextIndex()
    for end in range(len(text)):
        slow.read(text[:end])
        fast = TextIndex()
        while fast._read < end:
            fast.read(text[:end], 7)
        assert slow.find(text[:end]) == fast.find(text[:end]) == naive_place(text[:end])


def naive_place(text: list[int]) -> int | None:
    for size in (3, 2):
        places = [at for at in range(size, len(text)) if text[at - size : at] == text[-size:]]
        if places:
            return places[-1]
    return None


def test_agreement_counts_back_and_stops_at_the_first_difference() -> None:
    assert agreement([1, 2, 3], 3, [9, 2, 3], 3) == 2
    assert agreement([1, 2, 3], 3, [2, 3], 2) == 2
    assert agreement([5] * 100, 100, [5] * 99, 99) == MOST_COMPARED


def test_the_more_agrees_the_more_is_expected() -> None:
    short = LookupDrafter().guess([1, 2, 9, 1, 2], 1)
    text = list(range(50))
    long = LookupDrafter().guess([*text, *text[:40]], 3)
    assert short.kinds[0] < long.kinds[0] and long.kinds == tuple(sorted(long.kinds))


PROMPT = [90, 91]
TEXT = tuple(range(10, 40))


def follower(prediction: tuple[int, ...] = TEXT) -> PredictionFollower:
    return PredictionFollower(prediction, len(PROMPT))


def predicted_guess(follower: PredictionFollower, answer: list[int], most: int = 3) -> tuple[int, ...]:
    return follower.guess([*PROMPT, *answer], most).tokens


def test_an_answer_is_expected_to_begin_as_predicted() -> None:
    assert predicted_guess(follower(), []) == (10, 11, 12)


def test_the_place_moves_on_with_the_answer() -> None:
    one = follower()
    assert predicted_guess(one, [10, 11, 12, 13]) == (14, 15, 16)
    assert predicted_guess(one, [10, 11, 12, 13, 14]) == (15, 16, 17)
    assert one.accepted == 5


def test_behind_its_end_nothing_is_guessed() -> None:
    assert predicted_guess(follower(), list(TEXT)) == ()


def test_an_answer_that_goes_another_way_is_found_again() -> None:
    one = follower()
    assert predicted_guess(one, [10, 11, 77]) == ()
    assert predicted_guess(one, [10, 11, 77, 20]) == ()
    assert predicted_guess(one, [10, 11, 77, 20, 21]) == (22, 23, 24)
    assert predicted_guess(one, [10, 11, 77, 20, 21, 22]) == (23, 24, 25)
    assert one.accepted == 3  # 10, 11 and 22: the others were not expected


def test_what_comes_behind_is_preferred_to_what_came_before() -> None:
    one = follower((1, 2, 3, 4, 1, 2, 5, 6, 1, 2, 7))
    assert predicted_guess(one, [1, 2, 3, 9, 1, 2], 2) == (5, 6)
    assert predicted_guess(one, [1, 2, 3, 9, 1, 2, 9, 1, 2], 1) == (7,)
    assert predicted_guess(one, [1, 2, 3, 9, 1, 2, 9, 1, 2, 9, 1, 2], 1) == (7,)


def test_a_token_of_it_counts_once_however_often_it_comes() -> None:
    one = follower((1, 2, 3, 4))
    one.follow([*PROMPT, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4])
    assert one.accepted == 4


def test_a_prediction_of_one_token_is_one() -> None:
    assert predicted_guess(follower((5,)), []) == (5,) and predicted_guess(follower((5,)), [6]) == ()
