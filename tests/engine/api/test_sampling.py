"""The list of sampling parameters: what is stated of each number fits the field that it stands at."""

import math

import pytest

from engine.api.sampling import NEUTRAL, NUMBERS, PROPS_NAMES, WHOLE_NUMBERS, Bounds, Sampling


def test_every_number_has_a_default_within_its_bounds_or_none() -> None:
    for name, number in NUMBERS.items():
        default = getattr(NEUTRAL, name)
        assert default is None or number.bounds.hold(default), name


def test_only_lists_of_tokens_are_no_numbers() -> None:
    assert set(Sampling.__dataclass_fields__) - set(NUMBERS) == {"logit_bias", "allowed_tokens", "banned_sequences"}
    assert set(WHOLE_NUMBERS) == {"top_k", "seed"}


def test_no_two_numbers_have_the_same_name_outside() -> None:
    names = [key for name, number in NUMBERS.items() for key in (name, *number.other_names)]
    assert len(names) == len(set(names))
    assert len(PROPS_NAMES.values()) == len(set(PROPS_NAMES.values()))


@pytest.mark.parametrize(
    ("bounds", "inside", "outside", "text"),
    [
        (Bounds(ge=0, le=2), (0, 2), (-0.1, 2.1, math.nan), "from 0 to 2"),
        (Bounds(gt=0, le=1), (1e-9, 1), (0, 1.1, math.nan), "above 0, to 1"),
    ],
)
def test_bounds_hold_what_they_say(
    bounds: Bounds, inside: tuple[float, ...], outside: tuple[float, ...], text: str
) -> None:
    assert all(bounds.hold(value) for value in inside)
    assert not any(bounds.hold(value) for value in outside)
    assert str(bounds) == text


def test_a_value_below_the_floor_means_the_floor() -> None:
    assert (NUMBERS["top_k"].read(-1), NUMBERS["top_k"].read(5), NUMBERS["min_p"].read(0.1)) == (0, 5, 0.1)
