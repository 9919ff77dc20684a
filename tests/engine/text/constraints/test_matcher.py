"""What a matcher does when its answer leaves the grammar, or its grammar leaves no way."""

from itertools import count

import pytest

from engine.errors import EngineFaultError, RequestError
from tests.engine.text.constraints.tokenizers import constraint, led, spelled


def test_a_token_that_the_mask_forbids_is_our_fault() -> None:
    matcher = constraint('"ab"').start()
    with pytest.raises(EngineFaultError, match="does not allow"):
        matcher.accept(spelled("b")[0])


def test_a_matcher_that_went_wrong_allows_nothing_more() -> None:
    matcher = constraint('"ab"').start()
    with pytest.raises(EngineFaultError):
        matcher.accept(spelled("b")[0])
    with pytest.raises(RequestError, match="too complex for this answer"):
        matcher.mask()
    assert not matcher.is_complete


def test_a_grammar_may_not_lead_into_a_dead_end() -> None:
    matcher = constraint('"a" <|im_end|> "b"').start()
    assert led(matcher, spelled("a"))
    with pytest.raises(RequestError, match="no token goes on") as error:
        matcher.mask()
    assert error.value.param == "rule"


def tokens_until_too_complex() -> int:
    matcher = constraint('s\ns: s s | "a" | s s s').start()
    tokens = 0
    with pytest.raises(RequestError, match="too complex for this answer"):
        while tokens < 1000:
            matcher.mask()
            matcher.accept(spelled("a")[0])
            tokens += 1
    return tokens


def test_an_answer_ends_at_the_same_token_however_slow_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = tokens_until_too_complex()
    clock = count(step=1000.0)
    monkeypatch.setattr("time.thread_time", lambda: next(clock))
    assert tokens_until_too_complex() == tokens > 0


def test_a_mask_is_computed_once_a_token() -> None:
    matcher = constraint('"ab"').start()
    before = matcher.mask().copy()
    assert (matcher.mask() == before).all()
    matcher.accept(spelled("a")[0])
    assert (matcher.mask() != before).any()
