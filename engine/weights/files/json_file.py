"""Reads the JSON files of a model folder, with nothing in them taken on trust."""

import json
from pathlib import Path
from typing import Any

from engine.errors import ModelFileError, ModelNotFoundError

MAX_CONFIG_BYTES = 4 << 20


def read_json_object(path: Path, limit: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """The object that the file holds. Raises ModelNotFoundError where there is no file, ModelFileError for others."""
    try:
        size = path.stat().st_size
        if size > limit:
            raise ModelFileError(f"{path} has {size} bytes, and more than {limit} are not read; fetch it again.")
        return parse_json_object(path.read_bytes(), path)
    except FileNotFoundError as error:
        raise ModelNotFoundError(f"There is no file {path}, which the model needs; fetch the whole folder.") from error
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}; check the path and its permissions.") from error


def parse_json_object(text: bytes, path: Path) -> dict[str, Any]:
    """The object in `text`; a key that is there twice is refused, since readers would differ in which they take."""
    try:
        value = json.loads(text.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is broken: it is not sound JSON ({_reason(error)}); fetch it again.") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path} is broken: it holds no JSON object; fetch it again.")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0]
