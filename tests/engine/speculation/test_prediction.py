"""A predicted text is followed where the answer is it, left where it is not, and found again."""

from engine.speculation.drafters import PredictionFollower

PROMPT = [90, 91]
TEXT = tuple(range(10, 40))


def follower(prediction: tuple[int, ...] = TEXT) -> PredictionFollower:
    return PredictionFollower(prediction, len(PROMPT))


def guess(follower: PredictionFollower, answer: list[int], most: int = 3) -> tuple[int, ...]:
    return follower.guess([*PROMPT, *answer], most).tokens


def test_an_answer_is_expected_to_begin_as_predicted() -> None:
    assert guess(follower(), []) == (10, 11, 12)


def test_the_place_moves_on_with_the_answer() -> None:
    one = follower()
    assert guess(one, [10, 11, 12, 13]) == (14, 15, 16)
    assert guess(one, [10, 11, 12, 13, 14]) == (15, 16, 17)
    assert one.accepted == 5


def test_behind_its_end_nothing_is_guessed() -> None:
    assert guess(follower(), list(TEXT)) == ()


def test_an_answer_that_goes_another_way_is_found_again() -> None:
    one = follower()
    assert guess(one, [10, 11, 77]) == ()
    assert guess(one, [10, 11, 77, 20]) == ()
    assert guess(one, [10, 11, 77, 20, 21]) == (22, 23, 24)
    assert guess(one, [10, 11, 77, 20, 21, 22]) == (23, 24, 25)
    assert one.accepted == 3  # 10, 11 and 22: the others were not expected


def test_what_comes_behind_is_preferred_to_what_came_before() -> None:
    one = follower((1, 2, 3, 4, 1, 2, 5, 6, 1, 2, 7))
    assert guess(one, [1, 2, 3, 9, 1, 2], 2) == (5, 6)
    assert guess(one, [1, 2, 3, 9, 1, 2, 9, 1, 2], 1) == (7,)
    assert guess(one, [1, 2, 3, 9, 1, 2, 9, 1, 2, 9, 1, 2], 1) == (7,)


def test_a_token_of_it_counts_once_however_often_it_comes() -> None:
    one = follower((1, 2, 3, 4))
    one.follow([*PROMPT, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4])
    assert one.accepted == 4


def test_a_prediction_of_one_token_is_one() -> None:
    assert guess(follower((5,)), []) == (5,) and guess(follower((5,)), [6]) == ()
