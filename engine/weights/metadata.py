"""Typed access to a model's metadata: a key that is missing, of another type or out of range is a clear error."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TypeVar

from engine.errors import ModelFileError

T = TypeVar("T")

MAX_INT32 = 2**31 - 1


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

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number; an integer will do."""
        value = self._value(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._mismatch(key, "a finite number")
        try:
            number = float(value)
        except OverflowError:  # an integer of hundreds of digits
            number = math.inf
        if not math.isfinite(number):
            raise self._mismatch(key, "a finite number")
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

    def _value(self, key: str, default: T | None) -> object:
        value = self.values.get(key, default)
        if value is None:
            raise ModelFileError(f"{self.path} has no metadata key {key!r}, which this kind of model needs.")
        return value

    def _mismatch(self, key: str, expected: str) -> ModelFileError:
        return ModelFileError(f"{self.path} is broken: its metadata key {key!r} is not {expected}.")
