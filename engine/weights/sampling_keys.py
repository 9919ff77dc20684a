"""The sampling that a model's makers ask for, which holds where a request is silent: `general.sampling.*` metadata."""

from collections.abc import Mapping
from dataclasses import replace

from engine.api.sampling import NUMBERS, WHOLE_NUMBERS, Sampling
from engine.errors import ModelFileError
from engine.weights.files.metadata import Metadata
from engine.weights.files.weights_file import WeightsFile

PREFIX = "general.sampling."
KEYS = {name: f"{PREFIX}{number.file_key}" for name, number in NUMBERS.items() if number.file_key is not None}
_OFF = {
    f"{PREFIX}xtc_probability": 0,
    f"{PREFIX}mirostat": 0,
}  # what switches other servers' samplers off


def sampling_defaults(file: WeightsFile) -> Sampling:
    """The sampling of a request that says nothing. Raises ModelFileError for a value that no request could ask for."""
    metadata = Metadata(file.metadata, file.path)
    stated = {name: _checked(metadata, name, key) for name, key in KEYS.items() if key in metadata}
    return replace(Sampling(), **stated)  # type: ignore[arg-type]  # each value has the type of its field


def sampling_warnings(metadata: Mapping[str, object]) -> list[str]:
    """A line for each default of a file that has no effect here."""
    return [
        f"The default {key} = {metadata[key]!r} has no effect here."
        for key in sorted(key for key in metadata if key.startswith(PREFIX))
        if key not in KEYS.values() and not (key in _OFF and metadata[key] == _OFF[key])
    ]


def stated_number(metadata: Metadata, name: str, key: str) -> float:
    """The value of a key that holds the field `name` of Sampling. Raises ModelFileError for another type."""
    if name in WHOLE_NUMBERS:
        return metadata.integer(key, minimum=-1)
    return metadata.number(key)


def _checked(metadata: Metadata, name: str, key: str) -> float:
    number, value = NUMBERS[name], stated_number(metadata, name, key)
    value = round(value, 6)  # a float32 of the file, as its makers wrote it
    if not number.bounds.hold(value):
        raise ModelFileError(f"{metadata.path} is broken: its default {key} is {value}, not {number.bounds}.")
    return number.read(value)
