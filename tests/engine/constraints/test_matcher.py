"""What a matcher does when its answer leaves the grammar, or its grammar leaves no way."""

import pytest

from engine.constraints import matcher as matcher_module
from engine.errors import EngineFaultError, RequestError
from tests.engine.constraints.tokenizers import constraint, led, spelled


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


def test_a_grammar_that_takes_too_much_time_at_each_token_ends_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher_module, "FREE_SECONDS", -1.0)
    with pytest.raises(RequestError, match="too much time"):
        constraint('"slow"').start().mask()


def test_a_mask_is_computed_once_a_token() -> None:
    matcher = constraint('"ab"').start()
    before = matcher.mask().copy()
    assert (matcher.mask() == before).all()
    matcher.accept(spelled("a")[0])
    assert (matcher.mask() != before).any()
