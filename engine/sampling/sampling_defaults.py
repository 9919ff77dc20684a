"""How tokens are chosen where a request does not say: by the `general.sampling.*` metadata of the model's file."""

from collections.abc import Mapping
from dataclasses import dataclass

from engine.errors import ModelFileError
from engine.weights.files.metadata import Metadata
from engine.weights.files.weights_file import WeightsFile

PREFIX = "general.sampling."
_USED = frozenset(("temp", "top_k", "top_p", "min_p", "penalty_repeat"))
_OFF = {"xtc_probability": 0, "mirostat": 0}  # values at which a sampler that is not here would do nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingDefaults:
    """Of the requests to one model; what stands here is what a file that says nothing gets."""

    temperature: float = 1.0
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


def sampling_defaults(file: WeightsFile) -> SamplingDefaults:
    """Read and check them. Raises ModelFileError for a value that no request could ask for."""
    metadata, usual = Metadata(file.metadata, file.path), SamplingDefaults()
    return SamplingDefaults(
        temperature=_number(metadata, "temp", usual.temperature, 0.0, 2.0),
        top_k=max(0, metadata.integer(f"{PREFIX}top_k", usual.top_k, minimum=-1)),
        top_p=_number(metadata, "top_p", usual.top_p, 1e-6, 1.0),
        min_p=_number(metadata, "min_p", usual.min_p, 0.0, 1.0),
        repetition_penalty=_number(metadata, "penalty_repeat", usual.repetition_penalty, 0.01, 10.0),
    )


def sampling_warnings(metadata: Mapping[str, object]) -> list[str]:
    """A line for each default of a file that has no effect here."""
    names = {key: key.removeprefix(PREFIX) for key in metadata if key.startswith(PREFIX)}
    return [
        f"The default {key} = {metadata[key]!r} has no effect here."
        for key, name in sorted(names.items())
        if name not in _USED and not (name in _OFF and metadata[key] == _OFF[name])
    ]


def _number(metadata: Metadata, key: str, default: float, least: float, most: float) -> float:
    value = metadata.number(f"{PREFIX}{key}", default)
    if not least <= value <= most:
        raise ModelFileError(
            f"{metadata.path} is broken: its default {PREFIX}{key} is {value}, not from {least:g} to {most:g}."
        )
    return round(value, 6)  # a float32 of the file, as its makers wrote it
