"""What limits one request's tokens, through the sampler: bans, grammars and thinking; and where nothing is left."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.constraint import Constraint
from engine.api.prompt import Prompt
from engine.api.request import Request, Thinking
from engine.api.sampling import Sampling
from engine.errors import EngineFaultError, RequestError
from engine.sampling.sampler import Sampler
from engine.sampling.token_chooser import ThinkingBudget, TokenChooser
from tests.engine.scripted import END_ID, VOCAB_SIZE, hashed_logits, letters
from tests.engine.text.constraints.grammars import Hashed, Nothing, Words

SAMPLER = Sampler(VOCAB_SIZE)


def answer_of(request: Request, count: int) -> list[int]:
    """The first tokens of an answer, or all to its end token."""
    chooser, known = TokenChooser(request, frozenset({END_ID})), list(request.prompt)
    while len(known) < len(request.prompt) + count:
        known.append(SAMPLER.choose(hashed_logits(tuple(known)), chooser))
        if known[-1] == END_ID:
            break
    return known[len(request.prompt) :]


def request_of(**fields: Any) -> Request:
    sampling = {key: fields.pop(key) for key in list(fields) if key in Sampling.__dataclass_fields__}
    return Request(id="r", prompt=Prompt((1, 2)), sampling=Sampling(**sampling), **fields)


@settings(max_examples=100, deadline=None)
@given(
    st.sets(st.integers(1, VOCAB_SIZE - 1), min_size=1, max_size=8),
    st.sampled_from([0.0, 0.7, 2.0]),
    st.sampled_from([0, 3]),
    st.sampled_from([1.0, 0.5]),
    st.integers(0, 2**40),
)
def test_what_is_not_allowed_is_never_drawn(
    allowed: set[int], temperature: float, top_k: int, top_p: float, seed: int
) -> None:
    ways: list[dict[str, Any]] = [
        {"allowed_tokens": tuple(allowed)},
        {"logit_bias": tuple((token, -100.0) for token in range(VOCAB_SIZE) if token not in allowed)},
        {"banned_sequences": tuple((token,) for token in range(VOCAB_SIZE) if token not in allowed)},
    ]
    answers = [
        answer_of(request_of(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, **way), 20) for way in ways
    ]
    assert set(answers[0]) <= allowed
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("temperature", [0.0, 1.0, 2.0])
def test_a_bias_of_100_forces_its_token(temperature: float) -> None:
    assert answer_of(request_of(temperature=temperature, logit_bias=((9, 100.0),)), 10) == [9] * 10


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_grammar_is_kept_to_its_end(temperature: float) -> None:
    said = {
        tuple(answer_of(request_of(temperature=temperature, seed=seed, constraint=Words("ab", "abc", "dog")), 9))
        for seed in range(40)
    }
    assert said <= {(*letters(word), END_ID) for word in ("ab", "abc", "dog")}
    assert len(said) == (1 if temperature == 0 else 3)


def test_a_grammar_and_bans_hold_together() -> None:
    request = request_of(temperature=0, constraint=Words("ab", "dog"), logit_bias=((letters("a")[0], -100.0),))
    assert answer_of(request, 9) == [*letters("dog"), END_ID]


def test_a_complete_grammar_ends_before_enough_tokens_are_there() -> None:
    request = request_of(temperature=0, constraint=Words("ab"), min_tokens=10)
    assert answer_of(request, 9) == [*letters("ab"), END_ID]


def test_an_end_that_the_grammar_does_not_insist_on_waits_for_enough_tokens() -> None:
    request = request_of(temperature=0, constraint=Words("ab", "abcd"), min_tokens=3)
    assert answer_of(request, 9) == [*letters("abcd"), END_ID]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "fields",
    [
        {"constraint": Nothing()},
        {"allowed_tokens": ()},
        {"allowed_tokens": (4,), "banned_sequences": ((4,),)},
        {"constraint": Words("ab"), "logit_bias": ((1, -100.0),)},
        {"allowed_tokens": (END_ID,), "min_tokens": 1},
    ],
)
def test_where_nothing_is_left_the_request_fails_and_says_why(fields: dict[str, Any], temperature: float) -> None:
    with pytest.raises(RequestError, match="leave no token that could come next"):
        answer_of(request_of(temperature=temperature, **fields), 1)


def test_logits_that_are_no_numbers_are_told_from_too_many_bans() -> None:
    chooser = TokenChooser(request_of(temperature=0, allowed_tokens=(3,)))
    with pytest.raises(EngineFaultError, match="no usable logits"):
        SAMPLER.choose(np.full(VOCAB_SIZE, math.nan, np.float32), chooser)


def test_the_logits_themselves_stay_as_they_are() -> None:
    logits = hashed_logits((1,))
    kept = logits.copy()
    chooser = TokenChooser(request_of(temperature=1, frequency_penalty=1, constraint=Hashed(1), min_tokens=4))
    SAMPLER.choose(logits, chooser)
    assert logits.tobytes() == kept.tobytes()


def test_forced_tokens_take_no_number_of_the_stream() -> None:
    thinking = Thinking(inside=True, start_id=None, end_ids=(30, 31), budget=2)
    free, forced = TokenChooser(request_of(seed=5)), TokenChooser(request_of(seed=5, thinking=thinking))
    logits = hashed_logits((1,))
    own = [SAMPLER.choose(logits, free) for _ in range(6)]
    mixed = [SAMPLER.choose(logits, forced) for _ in range(8)]
    assert mixed == [*own[:2], 30, 31, *own[2:]]


class _Recorder:
    """Allows what it is told to, token by token, and remembers what was accepted."""

    def __init__(self, *allowed: set[int]) -> None:
        self._allowed = list(allowed)
        self.accepted: list[int] = []
        self.is_complete = False

    def start(self) -> "_Recorder":
        return self

    def mask(self) -> Any:
        bits = sum(1 << token for token in self._allowed[len(self.accepted)])
        return np.array([bits], np.uint32).view(np.int32)

    def accept(self, token: int) -> None:
        assert token in self._allowed[len(self.accepted)]
        self.accepted.append(token)


def test_a_grammar_takes_the_forced_tokens_and_delays_them_where_it_does_not_allow_them() -> None:
    """As in the middle of a character, which free text must complete before a tag may follow."""
    grammar = _Recorder({5, 30}, {6}, {7}, {8, 30}, {31}, {9})
    constraint: Constraint = grammar
    thinking = Thinking(inside=True, start_id=None, end_ids=(30, 31), budget=1)
    bias = tuple((token, -50.0) for token in (30, 31))
    request = request_of(temperature=0, thinking=thinking, constraint=constraint, logit_bias=bias)
    assert answer_of(request, 6) == [5, 6, 7, 30, 31, 9] == grammar.accepted


def test_each_choice_has_a_stream_of_its_own() -> None:
    answers = {tuple(answer_of(request_of(seed=7, choice=choice, ignore_eos=True), 12)) for choice in range(8)}
    assert len(answers) == 8


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
