"""Typed access to metadata: right values pass, and whatever is missing, mistyped or out of range names its key."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine.errors import ModelFileError
from engine.weights.files.metadata import Metadata

METADATA = Metadata(
    {
        "count": 30,
        "negative": -1,
        "huge": 2**63,
        "theta": 1e5,
        "infinite": float("inf"),
        "name": "llama",
        "bytes": "\udcff",
        "yes": True,
        "tokens": ["a", "\udcff"],
        "scores": np.zeros(2, np.float32),
        "nested": [["a"]],
    },
    "model.gguf",
)


def test_values_of_the_right_type_are_given_back() -> None:
    assert METADATA.integer("count") == 30
    assert METADATA.number("theta") == 1e5
    assert METADATA.text("name") == "llama"
    assert METADATA.flag("yes") is True
    assert METADATA.strings("tokens") == ["a", "\udcff"]
    assert METADATA.integer("negative", minimum=-1) == -1
    assert METADATA.integer("huge", maximum=2**64) == 2**63


def test_an_integer_is_a_number() -> None:
    value = METADATA.number("count")
    assert value == 30.0
    assert isinstance(value, float)


def test_defaults_stand_in_for_missing_keys_only() -> None:
    assert METADATA.integer("missing", 7) == 7
    assert METADATA.number("missing", 0.5) == 0.5
    assert METADATA.flag("missing", False) is False
    assert METADATA.text("missing", "") == ""
    assert METADATA.strings("missing", []) == []
    assert METADATA.integer("count", 7) == 30
    with pytest.raises(ModelFileError, match="'name'"):
        METADATA.integer("name", 7)


def test_membership_tells_whether_a_key_is_there() -> None:
    assert "count" in METADATA
    assert "missing" not in METADATA


@pytest.mark.parametrize("method", ["integer", "number", "text", "flag", "strings"])
def test_a_missing_key_without_default_is_named(method: str) -> None:
    read: Callable[[str], Any] = getattr(METADATA, method)
    with pytest.raises(ModelFileError, match=r"model\.gguf has no metadata key 'missing'"):
        read("missing")


@pytest.mark.parametrize(
    ("method", "key", "expected"),
    [
        ("integer", "name", "an integer"),
        ("integer", "theta", "an integer"),
        ("integer", "yes", "an integer"),
        ("integer", "scores", "an integer"),
        ("integer", "negative", "from 0 to 2147483647"),
        ("integer", "huge", "from 0 to 2147483647"),
        ("number", "name", "a finite number"),
        ("number", "yes", "a finite number"),
        ("number", "infinite", "a finite number"),
        ("text", "count", "UTF-8 text"),
        ("text", "bytes", "UTF-8 text"),
        ("flag", "count", "true or false"),
        ("strings", "name", "a list of strings"),
        ("strings", "scores", "a list of strings"),
        ("strings", "nested", "a list of strings"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(method: str, key: str, expected: str) -> None:
    read: Callable[[str], Any] = getattr(METADATA, method)
    with pytest.raises(ModelFileError, match=f"metadata key '{key}' is not {expected}"):
        read(key)
