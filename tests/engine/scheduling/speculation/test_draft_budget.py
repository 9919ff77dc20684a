"""How many drafts are tried follows from their chances and from what steps took, and from nothing else."""

import random

import pytest

from engine.run.pace import Pace
from engine.scheduling.speculation.draft_budget import STEPS_TO_PROBE, STEPS_WITH_DRAFTS, Acceptance, Worth
from engine.scheduling.speculation.drafters import FIRST_LIKELIHOODS, Guess, looked_up

STEP = 0.02


def measured(row: float, lanes: int = 1, most: int = 7) -> Pace:
    """Steps that one draft row makes longer by so much of a step."""
    pace = Pace()
    pace.note(lanes, (), STEP)
    for rows in range(1, most + 1):
        pace.note(lanes, (), STEP * (1 + row * rows), rows)
    return pace


def worth_rows(worth: Worth, chances: list[float], lanes: int = 1) -> int:
    return worth.rows(chances, lanes, worth.prices(lanes, 15))


def worth_model_rows(worth: Worth, chances: list[float], lanes: int = 1) -> int:
    return worth.model_rows(chances, lanes, worth.prices_with_rounds(lanes, worth.prices(lanes, 15)))


def chances(chance: float, count: int = 7) -> list[float]:
    return [chance ** (place + 1) for place in range(count)]


def test_nothing_is_tried_before_a_step_was_measured() -> None:
    assert worth_rows(Worth(Pace()), chances(0.99)) == 0


@pytest.mark.parametrize(("chance", "row", "count"), [(0.95, 0.1, 7), (0.3, 0.1, 1), (0.3, 0.35, 0), (0.8, 1.0, 0)])
def test_drafts_are_tried_as_far_as_they_pay(chance: float, row: float, count: int) -> None:
    assert worth_rows(Worth(measured(row)), chances(chance)) == count


def test_what_is_not_known_is_tried_little_by_little() -> None:
    pace = Pace()
    pace.note(1, (), STEP)
    worth, tried = Worth(pace), []
    for _ in range(3):
        tried.append(worth_rows(worth, chances(0.98)))
        pace.note(1, (), STEP * 1.1, tried[-1])
    assert tried == [2, 4, 7]


def test_of_many_sequences_each_draft_is_worth_less() -> None:
    assert worth_rows(Worth(measured(0.1)), chances(0.5)) > 0
    assert worth_rows(Worth(measured(0.1, lanes=8)), chances(0.5), 8) == 0


def test_now_and_then_a_step_is_without_so_that_its_time_stays_known() -> None:
    worth = Worth(measured(0.05))
    tried = [worth_rows(worth, chances(0.9)) for _ in range(2 * (STEPS_WITH_DRAFTS + 1))]
    assert tried.count(0) == 2


def test_good_guesses_that_do_not_pay_are_tried_again_after_ever_longer_whiles() -> None:
    worth = Worth(measured(1.5))
    tried = [worth_rows(worth, chances(0.9)) for _ in range((1 + 2 + 4) * STEPS_TO_PROBE)]
    probes = [step for step, rows in enumerate(tried, 1) if rows]
    assert probes == [STEPS_TO_PROBE, 3 * STEPS_TO_PROBE, 7 * STEPS_TO_PROBE] and sum(tried) == 3
    assert sum(worth_rows(worth, chances(0.3)) for _ in range(40 * STEPS_TO_PROBE)) == 0


def test_rounds_of_the_draft_block_are_paid_for_too() -> None:
    pace = measured(0.1)
    assert worth_model_rows(Worth(pace), chances(0.7)) > 0
    pace.note_rounds(0, 0.1 * STEP)
    pace.note_rounds(2, 2.1 * STEP)
    assert pace.round_seconds(1) == pytest.approx(STEP)
    assert worth_model_rows(Worth(pace), chances(0.7)) == 0


def test_rows_between_and_beyond_those_measured_have_a_price() -> None:
    pace = Pace()
    assert pace.draft_seconds(1, 3) is None
    pace.note(1, (), STEP)
    pace.note(1, (), 1.2 * STEP, 2)
    pace.note(1, (), 1.6 * STEP, 4)
    assert [pace.draft_seconds(1, rows) for rows in (1, 2, 3, 4, 8)] == pytest.approx(
        [0.1 * STEP, 0.2 * STEP, 0.4 * STEP, 0.6 * STEP, 1.2 * STEP]
    )
    assert pace.decode_seconds(1) == STEP


def test_acceptance_is_learned_of_each_kind_and_forgotten_again() -> None:
    acceptance = Acceptance(Acceptance())
    guess = looked_up((1,), agreed=2)
    first = acceptance.likelihood(guess.kinds[0])
    for _ in range(30):
        acceptance.note(guess, [1])
    good = acceptance.likelihood(guess.kinds[0])
    for _ in range(30):
        acceptance.note(guess, [2])
    assert first < 0.3 and good > 0.8 and acceptance.likelihood(guess.kinds[0]) < 0.3


def test_what_one_sequence_learned_is_expected_of_the_next() -> None:
    shared = Acceptance()
    guess = looked_up((1, 2), agreed=2)
    for _ in range(100):
        Acceptance(shared).note(guess, [1, 2])
    assert Acceptance(shared).likelihood(guess.kinds[0]) > 0.8


def test_a_guess_is_judged_up_to_its_first_wrong_token() -> None:
    acceptance = Acceptance()
    acceptance.note(Guess((1, 2, 3), (0, 1, 2)), [1, 5, 3])
    better, worse, same = (acceptance.likelihood(kind) - FIRST_LIKELIHOODS[kind] for kind in (0, 1, 2))
    assert better > 0 > worse and same == 0


def test_text_that_does_not_repeat_is_left_alone_soon() -> None:
    """Guesses that are right one time in eight, at a fifth of a step each: less than 1 % is lost."""
    rng, worth, acceptance = random.Random(1), Worth(measured(0.2)), Acceptance(Acceptance())
    guess, seconds, tokens = looked_up((1, 1, 1), agreed=2), 0.0, 0
    for _ in range(500):
        rows = worth_rows(worth, acceptance.chances(guess))
        came = [int(rng.random() < 0.125) for _ in range(4)]
        right = came[:rows].index(0) if 0 in came[:rows] else rows
        acceptance.note(guess, came[: right + 1])
        seconds, tokens = seconds + 1 + 0.2 * rows, tokens + 1 + right
    assert tokens / seconds > 0.99
