"""The shape of a llama model, read from GGUF metadata and checked before anything is built from it."""

from dataclasses import dataclass
from pathlib import Path

from engine.errors import ModelFileError, UnsupportedModelError
from engine.weights.gguf import GgufFile
from engine.weights.metadata import Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig:
    """Blueprint of a llama model (Llama 2, Llama 3, SmolLM2, TinyLlama, ...)."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    context_length: int
    epsilon: float
    rope_base: float
    rope_dimensions: int
    rope_factor: float  # linear scaling: positions are divided by it

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.heads // self.kv_heads


def read_llama_config(file: GgufFile) -> LlamaConfig:
    """Read and check the `llama.*` keys.

    Raises ModelFileError where they contradict each other, UnsupportedModelError for what kernels cannot do.
    """
    metadata = Metadata(file.metadata, file.path)
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelFileError(f"{file.path} is incomplete: it has no token_embd.weight matrix.")
    heads = metadata.integer("llama.attention.head_count", minimum=1)
    hidden = metadata.integer("llama.embedding_length", minimum=1)
    head_dim = metadata.integer("llama.attention.key_length", hidden // heads, minimum=1)
    config = LlamaConfig(
        layers=metadata.integer("llama.block_count", minimum=1, maximum=1024),
        hidden=hidden,
        heads=heads,
        kv_heads=metadata.integer("llama.attention.head_count_kv", heads, minimum=1),
        head_dim=head_dim,
        ffn=metadata.integer("llama.feed_forward_length", minimum=1),
        vocabulary=embedding.shape[0],
        context_length=metadata.integer("llama.context_length", minimum=1),
        epsilon=metadata.number("llama.attention.layer_norm_rms_epsilon"),
        rope_base=metadata.number("llama.rope.freq_base", 10000.0),
        rope_dimensions=metadata.integer("llama.rope.dimension_count", head_dim, minimum=2),
        rope_factor=_rope_factor(metadata, file.path),
    )
    _check(config, metadata, file.path)
    return config


def _rope_factor(metadata: Metadata, path: Path) -> float:
    kind = metadata.text("llama.rope.scaling.type", "none")
    if kind == "none":
        return 1.0
    if kind != "linear":
        raise UnsupportedModelError(f"{path} scales its positions by {kind!r}, which this version cannot do.")
    factor = metadata.number("llama.rope.scaling.factor", 1.0)
    if factor <= 0:
        raise ModelFileError(f"{path} is broken: its rope scaling factor is {factor}.")
    return factor


def _check(config: LlamaConfig, metadata: Metadata, path: Path) -> None:
    if config.heads % config.kv_heads:
        raise ModelFileError(f"{path} is broken: {config.heads} heads do not share {config.kv_heads} KV heads evenly.")
    if config.rope_dimensions > config.head_dim or config.rope_dimensions % 2:
        raise ModelFileError(f"{path} is broken: it turns {config.rope_dimensions} of {config.head_dim} dimensions.")
    if config.epsilon <= 0 or config.rope_base <= 0:
        raise ModelFileError(f"{path} is broken: its norm epsilon or its rope base is not positive.")
    if config.head_dim % 16 or config.hidden % 16 or config.ffn % 16:
        raise UnsupportedModelError(
            f"{path} has heads of {config.head_dim}, hidden rows of {config.hidden} and FFN rows of {config.ffn}"
            " values; this version needs multiples of 16."
        )
    if metadata.integer("llama.attention.value_length", config.head_dim) != config.head_dim:
        raise UnsupportedModelError(f"{path} has keys and values of different lengths, which this version cannot do.")
    if metadata.integer("llama.expert_count", 0) > 0:
        raise UnsupportedModelError(f"{path} is a mixture of experts, which this version cannot run.")
