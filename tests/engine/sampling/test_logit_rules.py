"""Each rule against its formula in float64, token by token, and what a rule leaves alone."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.prompt import Prompt
from engine.api.request import Request
from engine.api.sampling import Sampling
from engine.sampling.logit_rules import Float32, LogitRules

VOCAB = 200
ENDS = frozenset({0, 7})


def rules_of(prompt: tuple[int, ...] = (1, 2), *, min_tokens: int = 0, **sampling: Any) -> LogitRules:
    return LogitRules(
        Request(id="r", prompt=Prompt(prompt), min_tokens=min_tokens, sampling=Sampling(**sampling)), frozenset(ENDS)
    )


def applied(rules: LogitRules, logits: Float32, answer: tuple[int, ...] = (), *, may_ban_ends: bool = True) -> Float32:
    for token in answer:
        rules.accept(token)
    row = logits.copy()
    rules.apply(row, may_ban_ends=may_ban_ends)
    return row


def reference(
    logits: Float32, prompt: tuple[int, ...], answer: tuple[int, ...], min_tokens: int, params: Sampling
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The documented rules, one token of the vocabulary after the other."""
    bias, known = dict(params.logit_bias), (*prompt, *answer)
    result = []
    for token, logit in enumerate(logits.astype(np.float64)):
        count, x = answer.count(token), float(logit)
        if token in known:
            x = x / params.repetition_penalty if x > 0 else x * params.repetition_penalty
        x -= count * params.frequency_penalty + (count > 0) * params.presence_penalty
        x = -math.inf if bias.get(token, 0) == -100 else x + bias.get(token, 0)
        banned = params.allowed_tokens is not None and token not in params.allowed_tokens
        for *before, last in params.banned_sequences:
            banned |= last == token and list(known[len(known) - len(before) :]) == before
        banned |= len(answer) < min_tokens and token in ENDS
        result.append(-math.inf if banned else x)
    return np.array(result)


tokens = st.integers(0, VOCAB - 1)
params = st.builds(
    Sampling,
    frequency_penalty=st.sampled_from([0.0, 0.0, 0.7, -2.0]),
    presence_penalty=st.sampled_from([0.0, 0.0, 1.5, -1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.3, 0.5]),
    logit_bias=st.dictionaries(tokens, st.sampled_from([-100, -1.5, 3, 100]), max_size=5).map(
        lambda bias: tuple(bias.items())
    ),
    allowed_tokens=st.none() | st.lists(tokens, max_size=20).map(tuple),
    banned_sequences=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple), max_size=5).map(tuple),
)
answers = st.lists(st.integers(0, 5) | tokens, max_size=40).map(tuple) | st.permutations(range(VOCAB)).map(tuple)
prompts = st.lists(st.integers(0, 5) | tokens, min_size=1, max_size=40).map(tuple)


@settings(max_examples=300, deadline=None)
@given(params, prompts, answers, st.sampled_from([0, 1, 10]), st.integers(0, 2**32))
def test_all_rules_together_are_their_formulas(
    sampling: Sampling, prompt: tuple[int, ...], answer: tuple[int, ...], min_tokens: int, seed: int
) -> None:
    logits = np.random.default_rng(seed).normal(0, 3, VOCAB).astype(np.float32)
    rules = LogitRules(Request(id="r", prompt=Prompt(prompt), min_tokens=min_tokens, sampling=sampling), ENDS)
    expected = reference(logits, prompt, answer, min_tokens, sampling)
    np.testing.assert_allclose(applied(rules, logits, answer), expected, rtol=3e-6, atol=3e-5)


LOGITS = np.linspace(-2, 2, VOCAB).astype(np.float32)


def test_penalties_touch_the_tokens_that_were_seen_and_no_other_bit() -> None:
    row = applied(rules_of((9,), frequency_penalty=0.5, presence_penalty=0.25), LOGITS, (3, 30, 30))
    assert row[3] == LOGITS[3] - np.float32(0.75) and row[30] == LOGITS[30] - np.float32(1.25)
    assert np.flatnonzero(row != LOGITS).tolist() == [3, 30]


def test_the_prompt_counts_for_repetition_alone() -> None:
    row = applied(rules_of((1, 190), repetition_penalty=2.0), LOGITS, (2,))
    assert (row[1], row[190], row[2]) == (LOGITS[1] * 2, LOGITS[190] / 2, LOGITS[2] * 2)
    assert np.flatnonzero(row != LOGITS).tolist() == [1, 2, 190]


Tokens = tuple[int, ...]
BEGUN: list[tuple[Tokens, Tokens]] = [((4, 5), ()), ((4,), (5,)), ((1,), (4, 5))]
NOT_BEGUN: list[tuple[Tokens, Tokens]] = [((1,), ()), ((1,), (5,)), ((1,), (4, 5, 1)), ((5,), (4,))]


@pytest.mark.parametrize(
    ("prompt", "answer", "banned"), [(*case, [6, 8]) for case in BEGUN] + [(*case, [8]) for case in NOT_BEGUN]
)
def test_a_banned_word_is_banned_where_the_tokens_before_began_it(
    prompt: Tokens, answer: Tokens, banned: list[int]
) -> None:
    row = applied(rules_of(prompt, banned_sequences=((4, 5, 6), (8,))), LOGITS, answer)
    assert np.flatnonzero(np.isneginf(row)).tolist() == banned


def test_end_tokens_are_banned_until_enough_tokens_are_there_and_where_they_may_be() -> None:
    rules = rules_of(min_tokens=2)
    assert np.flatnonzero(np.isneginf(applied(rules, LOGITS))).tolist() == [0, 7]
    assert applied(rules, LOGITS, may_ban_ends=False).tobytes() == LOGITS.tobytes()
    assert np.isneginf(applied(rules, LOGITS, (1,))[0]) and rules.are_needed
    rules.accept(1)
    assert not rules.are_needed


@pytest.mark.parametrize("bias", [-100, -100.0])
def test_a_bias_of_minus_100_is_a_ban_and_one_of_100_is_added(bias: float) -> None:
    row = applied(rules_of(logit_bias=((3, bias), (5, 100), (6, -99.5))), LOGITS)
    assert np.isneginf(row[3]) and row[5] == LOGITS[5] + np.float32(100) and row[6] == LOGITS[6] - np.float32(99.5)


def test_a_request_that_asks_for_nothing_needs_no_rules() -> None:
    assert not rules_of().are_needed
    assert not rules_of(temperature=0.3, top_k=4, top_p=0.5, min_p=0.1, seed=3).are_needed


def test_logits_that_are_no_numbers_pass_without_a_warning() -> None:
    logits = np.array([math.inf, -math.inf, math.nan, 3e38] * 10, np.float32)
    row = applied(rules_of((0, 1, 2, 3), repetition_penalty=0.01, logit_bias=((0, -100), (1, 5))), logits)
    assert not np.isfinite(row[:4]).any()
