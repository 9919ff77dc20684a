"""The families that folders of safetensors can be of, by `model_type` in config.json."""

from collections.abc import Callable

from engine.errors import UnsupportedModelError
from engine.weights.files.metadata import Metadata
from engine.weights.mapping.config_keys import unknown_keys
from engine.weights.mapping.dense import DENSE
from engine.weights.mapping.gemma3 import map_gemma3
from engine.weights.mapping.hybrid import map_qwen3next, map_qwen35, map_qwen35moe
from engine.weights.mapping.mixture import map_qwen3moe
from engine.weights.mapping.names import Stored
from engine.weights.mapping.recipe import Mapped

MAPPINGS: dict[str, Callable[[Metadata, Stored], Mapped]] = {
    **DENSE,
    "qwen3_moe": map_qwen3moe,
    "gemma3_text": map_gemma3,
    "gemma3": map_gemma3,
    "qwen3_5_text": map_qwen35,
    "qwen3_5": map_qwen35,
    "qwen3_5_moe_text": map_qwen35moe,
    "qwen3_5_moe": map_qwen35moe,
    "qwen3_next": map_qwen3next,
}


def map_model(config: Metadata, stored: Stored) -> Mapped:
    """The model in GGUF's terms. Raises UnsupportedModelError or ModelFileError."""
    kind = config.text("model_type")
    if kind not in MAPPINGS:
        raise UnsupportedModelError(
            f"{config.path} is of the model type {kind!r}; this version reads folders of {', '.join(MAPPINGS)}."
        )
    mapped = MAPPINGS[kind](config, stored)
    mapped.metadata |= unknown_keys(config, mapped.architecture)
    mapped.metadata = {f"{mapped.architecture}.{key}": value for key, value in mapped.metadata.items()}
    return mapped
