"""The keys of a mixture of experts, and every way in which they can be wrong."""

import numpy as np
import pytest

from engine.errors import ModelError, ModelFileError, UnsupportedModelError
from engine.families.config import read_mixture
from engine.families.emit.mixture import Mixture
from engine.weights.files.metadata import Metadata

KEYS = {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 64}


def read(**changes: object) -> Mixture:
    values = {f"arch.{key}": value for key, value in {**KEYS, **changes}.items() if value is not None}
    return read_mixture(Metadata(values, "model.gguf"), "arch")


def test_weights_are_divided_by_their_sum_where_the_file_says_nothing() -> None:
    assert read() == Mixture(experts=8, active=2, width=64, shared_width=0, renormalize=True, scale=1.0)


def test_every_key_is_read() -> None:
    mixture = read(expert_shared_feed_forward_length=32, expert_weights_norm=False, expert_weights_scale=2.5)
    assert mixture == Mixture(experts=8, active=2, width=64, shared_width=32, renormalize=False, scale=2.5)


def test_a_scale_of_zero_is_none_and_an_array_of_one_number_is_that_number() -> None:
    assert read(expert_weights_scale=0.0) == read()
    assert read(expert_feed_forward_length=np.array([64, 64, 64], np.int32)) == read()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"expert_used_count": 9}, ModelFileError, "expert_used_count' is not from 1 to 8"),
        ({"expert_used_count": 0}, ModelFileError, "expert_used_count' is not from 1 to 8"),
        ({"expert_count": 0}, ModelFileError, "expert_count' is not from 1"),
        ({"expert_feed_forward_length": None}, ModelFileError, "no metadata key 'arch.expert_feed_forward_length'"),
        ({"expert_feed_forward_length": 40}, UnsupportedModelError, "experts of 40 and shared ones of 0 values"),
        ({"expert_shared_feed_forward_length": 8}, UnsupportedModelError, "shared ones of 8 values"),
        ({"expert_weights_scale": -1.0}, ModelFileError, "expert_weights_scale' is not above 0"),
        (
            {"expert_feed_forward_length": np.array([64, 32])},
            UnsupportedModelError,
            r"layers that differ in .*\[64, 32\]",
        ),
        ({"expert_weights_norm": 1}, ModelFileError, "expert_weights_norm' is not true or false"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], error: type[ModelError], message: str) -> None:
    with pytest.raises(error, match=message):
        read(**changes)
