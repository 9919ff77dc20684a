"""The shape of a transformer of attention and feed-forward layers, read from metadata and checked first."""

import math
from dataclasses import dataclass

from engine.errors import ModelFileError, UnsupportedModelError
from engine.families.family import KvLayers
from engine.families.rope import Rope, read_rope
from engine.weights.files.metadata import Metadata
from engine.weights.files.weights_file import WeightsFile


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerConfig:
    """Blueprint that llama, qwen2 and qwen3 have in common; others add to it."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int  # 0: every layer is a mixture of experts
    vocabulary: int
    context_length: int
    epsilon: float
    attention_scale: float  # of queries
    rope: Rope

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.heads // self.kv_heads

    @property
    def kv_layers(self) -> tuple[KvLayers, ...]:
        return (KvLayers(0, self.layers, self.kv_heads, self.head_dim),)

    @property
    def state_bytes(self) -> int:
        return 0


def read_transformer_config(file: WeightsFile) -> TransformerConfig:
    """Read and check the keys of the file's architecture.

    Raises ModelFileError where they contradict each other, UnsupportedModelError for what kernels cannot do.
    """
    metadata, name = Metadata(file.metadata, file.path), file.architecture
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelFileError(f"{file.path} is incomplete: it has no token_embd.weight matrix.")
    heads = metadata.layer_integer(f"{name}.attention.head_count", minimum=1)
    hidden = metadata.integer(f"{name}.embedding_length", minimum=1)
    head_dim = metadata.integer(f"{name}.attention.key_length", hidden // heads, minimum=1)
    experts = metadata.integer(f"{name}.expert_count", 0)
    ffn = 0 if experts else metadata.layer_integer(f"{name}.feed_forward_length", minimum=1)
    config = TransformerConfig(
        layers=metadata.integer(f"{name}.block_count", minimum=1, maximum=1024),
        hidden=hidden,
        heads=heads,
        kv_heads=metadata.layer_integer(f"{name}.attention.head_count_kv", heads, minimum=1),
        head_dim=head_dim,
        ffn=ffn,
        vocabulary=embedding.shape[0],
        context_length=metadata.integer(f"{name}.context_length", minimum=1),
        epsilon=metadata.positive(f"{name}.attention.layer_norm_rms_epsilon", maximum=1.0),
        attention_scale=_attention_scale(metadata, f"{name}.attention.scale", 1 / math.sqrt(head_dim)),
        rope=read_rope(metadata, name, head_dim),
    )
    _check(config, metadata, name)
    return config


def _attention_scale(metadata: Metadata, key: str, usual: float) -> float:
    """Of queries; 0 says, as in llama.cpp, that it is the usual one."""
    return usual if metadata.number(key, 0.0) == 0 else metadata.positive(key, maximum=1e6)


def read_dense_config(file: WeightsFile) -> TransformerConfig:
    """Like `read_transformer_config`, and refuse a mixture of experts."""
    if Metadata(file.metadata, file.path).integer(f"{file.architecture}.expert_count", 0) > 0:
        raise UnsupportedModelError(
            f"{file.path} is a mixture of experts of the architecture {file.architecture!r}, which this version"
            " cannot run."
        )
    return read_transformer_config(file)


def _check(config: TransformerConfig, metadata: Metadata, name: str) -> None:
    path = metadata.path
    if config.heads % config.kv_heads:
        raise ModelFileError(f"{path} is broken: {config.heads} heads do not share {config.kv_heads} KV heads evenly.")
    if config.head_dim % 16 or config.hidden % 16 or config.ffn % 16:
        raise UnsupportedModelError(
            f"{path} has heads of {config.head_dim}, hidden rows of {config.hidden} and FFN rows of {config.ffn}"
            " values; this version needs multiples of 16."
        )
    if metadata.layer_integer(f"{name}.attention.value_length", config.head_dim) != config.head_dim:
        raise UnsupportedModelError(f"{path} has keys and values of different lengths, which this version cannot do.")
