"""The families that this version runs, by the architecture's name in GGUF."""

from typing import Any

from engine.errors import UnsupportedModelError
from engine.families.family import Family
from engine.families.gemma3 import build_gemma3
from engine.families.gemma3_config import read_gemma3_config
from engine.families.llama import build_llama
from engine.families.mixture_emitter import mixture_kernels
from engine.families.qwen2 import build_qwen2
from engine.families.qwen3 import build_qwen3
from engine.families.qwen3moe import build_qwen3moe, read_qwen3moe_config
from engine.families.qwen3next import ungrouped
from engine.families.qwen35 import build_qwen35, qwen35_kernels
from engine.families.qwen35_config import read_qwen35_config
from engine.families.transformer_config import read_dense_config
from engine.weights.weights_file import WeightsFile

FAMILIES: dict[str, Family[Any]] = {
    "llama": Family(read_dense_config, build_llama),
    "qwen2": Family(read_dense_config, build_qwen2),
    "qwen3": Family(read_dense_config, build_qwen3),
    "qwen3moe": Family(read_qwen3moe_config, build_qwen3moe, mixture_kernels),
    "qwen35": Family(read_qwen35_config, build_qwen35, qwen35_kernels),
    "qwen35moe": Family(read_qwen35_config, build_qwen35, qwen35_kernels),
    "qwen3next": Family(read_qwen35_config, build_qwen35, qwen35_kernels, ungrouped),
    "gemma3": Family(read_gemma3_config, build_gemma3),
}


def family_of(file: WeightsFile) -> Family[Any]:
    """Return the family of a model; UnsupportedModelError where its architecture has no builder."""
    family = FAMILIES.get(file.architecture)
    if family is None:
        raise UnsupportedModelError(
            f"{file.path} is of the architecture {file.architecture!r}; this version runs: {', '.join(FAMILIES)}."
        )
    return family
