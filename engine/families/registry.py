"""The families that this version runs, by the architecture's name in GGUF."""

from dataclasses import dataclass
from typing import Any

from engine.emit.mixture_emitter import mixture_kernels
from engine.errors import UnsupportedModelError
from engine.families.family import Family
from engine.families.gemma3 import build_gemma3, read_gemma3_config
from engine.families.keys import check_keys
from engine.families.llama import build_llama
from engine.families.qwen2 import build_qwen2
from engine.families.qwen3 import build_qwen3
from engine.families.qwen3moe import build_qwen3moe, read_qwen3moe_config
from engine.families.qwen3next import ungrouped
from engine.families.qwen35 import build_qwen35, qwen35_kernels, read_qwen35_config
from engine.families.tensor_shapes import (
    check_tensors,
    gemma3_shapes,
    llama_shapes,
    qwen2_shapes,
    qwen3_shapes,
    qwen3moe_shapes,
    qwen35_shapes,
)
from engine.families.transformer_config import read_dense_config
from engine.text.tokenizer_keys import tokenizer_warnings
from engine.weights.files.metadata import Metadata
from engine.weights.files.sampling_keys import sampling_warnings
from engine.weights.files.weights_file import WeightsFile

_QUANTIZATION_VERSION = 2

FAMILIES: dict[str, Family[Any]] = {
    "llama": Family(read_dense_config, llama_shapes, build_llama),
    "qwen2": Family(read_dense_config, qwen2_shapes, build_qwen2),
    "qwen3": Family(read_dense_config, qwen3_shapes, build_qwen3),
    "qwen3moe": Family(read_qwen3moe_config, qwen3moe_shapes, build_qwen3moe, mixture_kernels),
    "qwen35": Family(read_qwen35_config, qwen35_shapes, build_qwen35, qwen35_kernels),
    "qwen35moe": Family(read_qwen35_config, qwen35_shapes, build_qwen35, qwen35_kernels),
    "qwen3next": Family(read_qwen35_config, qwen35_shapes, build_qwen35, qwen35_kernels, ungrouped),
    "gemma3": Family(read_gemma3_config, gemma3_shapes, build_gemma3),
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
    warnings = check_keys(file)
    config = family.read_config(file)
    view = family.view(file)
    warnings += check_tensors(view, family.tensors(config, view.tensors))
    rows = Metadata(file.metadata, file.path).integer(f"{file.architecture}.vocab_size", config.vocabulary)
    if rows != config.vocabulary:
        warnings.append(
            f"The key {file.architecture}.vocab_size = {rows} is not the number of embeddings, {config.vocabulary},"
            " which counts."
        )
    warnings += tokenizer_warnings(file.metadata) + sampling_warnings(file.metadata)
    return Blueprint(family=family, config=config, file=view, warnings=tuple(warnings))
