"""The families that this version runs, by the architecture's name in GGUF."""

from dataclasses import dataclass
from typing import Any

from engine.errors import UnsupportedModelError
from engine.families.checks import check_keys, check_tensors
from engine.families.dense import DENSE
from engine.families.family import Family
from engine.families.gemma3 import GEMMA3
from engine.families.qwen3next import QWEN3NEXT
from engine.families.qwen35 import QWEN35, QWEN35MOE
from engine.text.tokenizer_keys import tokenizer_warnings
from engine.weights.files.metadata import Metadata
from engine.weights.files.weights_file import WeightsFile
from engine.weights.sampling_keys import sampling_warnings

_QUANTIZATION_VERSION = 2

FAMILIES: dict[str, Family[Any]] = {
    **DENSE,
    "qwen35": QWEN35,
    "qwen35moe": QWEN35MOE,
    "qwen3next": QWEN3NEXT,
    "gemma3": GEMMA3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """A model that this version runs as its maker means it, by its header alone."""

    family: Family[Any]
    config: Any  # the family's own FamilyConfig
    file: WeightsFile  # with the tensors that the family reads
    warnings: tuple[str, ...]  # a line for each thing in it that changes nothing here


def family_of(file: WeightsFile) -> Family[Any]:
    """Return the family of a model; UnsupportedModelError where its architecture has no builder."""
    family = FAMILIES.get(file.architecture)
    if family is None:
        raise UnsupportedModelError(
            f"{file.path} is of the architecture {file.architecture!r}; this version runs: {', '.join(FAMILIES)}."
        )
    return family


def _check_layout(file: WeightsFile) -> None:
    """Quantized blocks are laid out as ggml has them since 2023, which it calls version 2."""
    key = "general.quantization_version"
    version = Metadata(file.metadata, file.path).integer(key, _QUANTIZATION_VERSION)
    if version != _QUANTIZATION_VERSION:
        raise UnsupportedModelError(
            f"{file.path} says {key} = {version}, and this version reads {_QUANTIZATION_VERSION};"
            " convert the model again."
        )


def read_blueprint(file: WeightsFile) -> Blueprint:
    """Check all keys of the architecture and all tensors; nothing of any size is allocated or read.

    Raises ModelFileError or UnsupportedModelError, with the name of the key or the tensor that is at fault.
    """
    family = family_of(file)
    _check_layout(file)
    warnings = check_keys(file, family.keys)
    config = family.read_config(file)
    view = family.view(file)
    warnings += check_tensors(view, family.tensors(config, view.tensors), has_towers=family.has_towers)
    rows = Metadata(file.metadata, file.path).integer(f"{file.architecture}.vocab_size", config.vocabulary)
    if rows != config.vocabulary:
        warnings.append(
            f"The key {file.architecture}.vocab_size = {rows} is not the number of embeddings, {config.vocabulary},"
            " which counts."
        )
    warnings += tokenizer_warnings(file.metadata) + sampling_warnings(file.metadata)
    return Blueprint(family=family, config=config, file=view, warnings=tuple(warnings))
