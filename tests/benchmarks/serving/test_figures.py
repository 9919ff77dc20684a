"""What the programs of benchmarks/serving make of what they saw."""

import random

import pytest

from benchmarks.serving import arrival, beside_tokenize, curve, overload, second_turn, soak
from benchmarks.serving.resident import bytes_per_second, later_half
from benchmarks.serving.text import conversation, with_first_word, words
from clients.load_plan import Plan
from clients.load_report import report
from clients.load_run import Record, Run
from clients.streamed import Streamed


def answer(first_token: float, *, prompt: int = 0, cached: int = 0, text: str = "a") -> Streamed:
    usage = {"prompt_tokens": prompt, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": cached}}
    return Streamed(10.0, 20.0, [10.0 + first_token], [text], "stop", usage)


def test_a_conversation_begins_with_the_system_ends_with_the_user_and_shares_no_first_word() -> None:
    draw = random.Random(1)
    chats = [conversation(draw, 400) for _ in range(20)]
    for chat in chats:
        roles = [message["role"] for message in chat]
        assert roles == ["system", *["user", "assistant"] * 4, "user"]
        assert 390 <= sum(len(message["content"].split()) for message in chat) <= 410
    assert len({chat[0]["content"].split()[0] for chat in chats}) == 20


def test_the_control_differs_in_its_first_word_only() -> None:
    chat = conversation(random.Random(2), 100)
    control = with_first_word(chat, "Otherwise")
    assert control[1:] == chat[1:]
    assert control[0]["content"].split()[1:] == chat[0]["content"].split()[1:]
    assert control[0]["content"].startswith("Otherwise ") and not chat[0]["content"].startswith("Otherwise ")


def test_words_are_the_same_for_the_same_seed() -> None:
    assert words(random.Random(3), 9) == words(random.Random(3), 9)
    assert len(words(random.Random(3), 9).split()) == 9


def test_the_second_turn_is_set_against_both_cold_ones_by_medians() -> None:
    chats = [
        second_turn.Chat(answer(first, prompt=2000), answer(0.1, prompt=2100, cached=2048), answer(2.5, prompt=2100))
        for first in (1.0, 2.0, 90.0)
    ]
    found = second_turn.figures(chats)
    assert (found["second_to_first"], found["second_to_control"]) == (pytest.approx(0.05), pytest.approx(0.04))
    turns = found["turns"]
    assert isinstance(turns, dict)
    assert [turns[turn]["cached_tokens"] for turn in second_turn.TURNS] == [0, 2048, 0]


def test_gaps_are_those_that_overlap_the_time() -> None:
    gaps = [(0.0, 1.0), (1.0, 3.0), (3.0, 3.5), (3.5, 9.0), (9.0, 9.5)]
    assert arrival.gaps_within(gaps, 2.0, 4.0) == [2.0, 0.5, 5.5]
    assert arrival.gaps_within(gaps, 1.0, 3.0) == [2.0]


def test_the_arrivals_worst_gap_is_over_all_repeats_and_its_first_token_a_ratio_of_medians() -> None:
    seen = arrival.Seen([2.0, 1.0, 9.0], [3.0, 2.0, 4.0], [0.1] * 5, [0.1, 0.2, 0.5], [0.2, 0.5, 0.1])
    seen.targets = [0.2, 0.25, 0.3]
    found = seen.figures()
    assert (found["target_ms"], found["worst_to_target"]) == (250.0, 2.0)
    assert (found["gap_during_ms_worst"], found["gap_during_ms_worst_median"]) == (500.0, 200.0)
    assert (found["gap_before_ms_p50"], found["first_token_ratio"]) == (100.0, 1.5)


def test_llama_cpps_line_gives_the_same_figures() -> None:
    told = {"n_batch": 2048, "alone": [1.0], "together": [2.0], "before": [0.1], "during": [1.5, 0.5], "worst": [1.5]}
    found = arrival.llamacpp_figures(told)
    assert (found["n_batch"], found["gap_during_ms_worst"], found["first_token_ratio"]) == (2048, 1500.0, 2.0)


def test_the_shares_of_the_engine_count_prompts_or_do_not() -> None:
    plan = Plan(model="m", requests=2, concurrency=2, prompt_tokens=100, output_tokens=11)
    usage = {"prompt_tokens": 100, "completion_tokens": 11}
    # Both decode from 1 s on, ten tokens after the first within a second.
    records = [Record(i, Streamed(0.0, 2.0, [1.0, 2.0], ["x", "y"], "length", usage)) for i in range(2)]
    result = report(Run(plan, 0.0, 2.0, 0.0, records))
    shares = curve.shares(result, plan, decode=20.0, prefill=200.0)
    assert shares["decoding"] == pytest.approx(1.0)
    assert shares["with_prompts"] == pytest.approx(1.0)  # 11 tokens take the engine 0.5 s of prompt and 0.5 s of decode
    assert shares["all"] == pytest.approx(0.55)


def test_the_shares_of_turns_give_their_medians() -> None:
    each: list[curve.Shares] = [
        {"all": 0.9, "decoding": None},
        {"all": 0.5, "decoding": None},
        {"all": 0.8, "decoding": 0.7},
    ]
    assert curve.medians(each) == {"all": 0.8, "decoding": 0.7}
    assert curve.medians(each[:1]) == {"all": 0.9, "decoding": None}
    assert curve.medians([]) == {}


def test_refusals_are_polite_only_with_a_time_to_come_back() -> None:
    outcomes = [overload.Outcome(200, None, 5.0), overload.Outcome(429, "2", 0.2), overload.Outcome(429, None, 0.4)]
    found = overload.figures([*outcomes, overload.Outcome(0, None, 1.0)])
    assert (found["finished"], found["refused_with_retry_after"], found["refusal_ms_latest"]) == (1, 1, 400.0)
    assert found["by_status"] == {"200": 1, "429": 2, "0": 1}
    assert (found["retry_after"], found["last_served_seconds"]) == (["2"], 5.0)


def test_chats_beside_a_crowd_are_compared_by_their_medians() -> None:
    rounds = [
        beside_tokenize.Round([0.1, 0.3], [0.5], [200, 429], 2.0),
        beside_tokenize.Round([0.2], [0.4, 0.9], [200], 1.0),
    ]
    found = beside_tokenize.figures(rounds)
    assert found["alone"] == {"chats": 3, "first_token_ms": 200.0, "worst_ms": 300.0}
    assert found["beside"] == {"chats": 3, "first_token_ms": 500.0, "worst_ms": 900.0}
    assert (found["later_ms"], found["crowd_statuses"]) == (300.0, {200: 2, 429: 1})
    nothing = beside_tokenize.figures([beside_tokenize.Round([0.1])])
    assert (nothing["later_ms"], nothing["crowd_seconds"]) == (None, [0.0])


def test_an_answer_is_compared_whole_and_one_that_was_left_as_a_beginning() -> None:
    tally = soak.Tally()
    alone = ("abc", "stop", 1)
    whole, left = answer(1.0, text="abc"), answer(1.0, text="ab")
    left.ended = None
    tally.compare(0, whole, alone)
    tally.compare(1, left, alone)
    assert (tally.compared, tally.left_early, tally.differences) == (2, 1, [])
    for wrong in (answer(1.0, text="ab"), answer(1.0, text="abd"), answer(1.0, text="abcd")):
        tally.compare(2, wrong, alone)
    left.pieces = ["ac"]
    tally.compare(3, left, alone)
    assert [difference["case"] for difference in tally.differences] == [2, 2, 2, 3]
    assert soak.figures(tally, [(0.0, 1), (9.0, 1)])["different"] == 4


def test_the_slope_of_memory_is_that_of_the_later_half() -> None:
    samples = [(float(at), 50 * at if at < 10 else 500 + 3 * (at - 10)) for at in range(21)]
    assert bytes_per_second(later_half(samples)) == pytest.approx(3.0)
    assert bytes_per_second([(1.0, 5), (1.0, 7)]) is None and bytes_per_second([]) is None
