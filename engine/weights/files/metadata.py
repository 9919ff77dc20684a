"""Typed access to a model's metadata: a key that is missing, of another type or out of range is a clear error.

Arrays of numbers and of flags are NumPy's, as GGUF's reader gives them, or lists, as JSON's does.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TypeVar

import numpy as np

from engine.errors import ModelFileError, UnsupportedModelError

T = TypeVar("T")

MAX_INT32 = 2**31 - 1
SMALLEST_FLOAT32 = 1.2e-38  # with all its digits


@dataclass(frozen=True, slots=True)
class Metadata:
    """Wraps key/value pairs of the model at `path`; without a default, a key must be there."""

    values: Mapping[str, object]
    path: str | PathLike[str]

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def integer(self, key: str, default: int | None = None, *, minimum: int = 0, maximum: int = MAX_INT32) -> int:
        value = self._value(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._mismatch(key, "an integer")
        if not minimum <= value <= maximum:
            raise self._mismatch(key, f"from {minimum} to {maximum}")
        return value

    def layer_integer(self, key: str, default: int | None = None, *, minimum: int = 0) -> int:
        """An integer, or an array with the same one for each layer: files may hold either.

        Raises UnsupportedModelError where layers differ.
        """
        value = self._array(key)
        if value is None:
            return self.integer(key, default, minimum=minimum)
        if not value or any(other != value[0] for other in value):
            raise UnsupportedModelError(
                f"{self.path} has layers that differ in {key!r}: {value[:8]}; this version runs models whose layers"
                " are alike."
            )
        return Metadata({key: value[0]}, self.path).integer(key, minimum=minimum)

    def flags(self, key: str, count: int) -> tuple[bool, ...] | None:
        """A flag for each of `count` layers, from an array of so many or more; None where the key holds no array."""
        value = self._array(key)
        if value is None:
            return None
        if len(value) < count or not all(isinstance(flag, bool) for flag in value):
            raise self._mismatch(key, f"a flag for each of {count} layers")
        return tuple(bool(flag) for flag in value[:count])

    def number(self, key: str, default: float | None = None, *, maximum: float = math.inf) -> float:
        """A finite number up to `maximum`; an integer will do."""
        value = self._value(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._mismatch(key, "a finite number")
        try:
            number = float(value)
        except OverflowError:  # an integer of hundreds of digits
            number = math.inf
        if not math.isfinite(number):
            raise self._mismatch(key, "a finite number")
        if number > maximum:
            raise self._mismatch(key, f"at most {maximum:g}")
        return number

    def positive(self, key: str, default: float | None = None, *, maximum: float) -> float:
        """A number above 0, and large enough to be one in float32."""
        number = self.number(key, default, maximum=maximum)
        if number < SMALLEST_FLOAT32:
            raise self._mismatch(key, "above 0")
        return number

    def share(self, key: str, default: float) -> float:
        """A number from 0 to 1."""
        value = self.number(key, default)
        if not 0 <= value <= 1:
            raise self._mismatch(key, "from 0 to 1")
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self._mismatch(key, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """Valid Unicode: the lone surrogates that stand for other bytes are refused."""
        value = self._value(key, default)
        if not isinstance(value, str) or any("\ud800" <= character <= "\udfff" for character in value):
            raise self._mismatch(key, "UTF-8 text")
        return value

    def strings(self, key: str, default: list[str] | None = None) -> list[str]:
        """Strings as the reader gave them: bytes that are not UTF-8 are lone surrogates."""
        value = self._value(key, default)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._mismatch(key, "a list of strings")
        return value

    def _array(self, key: str) -> list[object] | None:
        """The members of an array, as Python's own values; None for anything else, or nothing."""
        value = self.values.get(key)
        if isinstance(value, np.ndarray):
            return list(value.tolist())
        return value if isinstance(value, list) else None

    def _value(self, key: str, default: T | None) -> object:
        value = self.values.get(key, default)
        if value is None:
            raise ModelFileError(f"{self.path} has no metadata key {key!r}, which this kind of model needs.")
        return value

    def _mismatch(self, key: str, expected: str) -> ModelFileError:
        return ModelFileError(f"{self.path} is broken: its metadata key {key!r} is not {expected}.")
