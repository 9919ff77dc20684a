"""The shape of a transformer, read from metadata and checked before anything is built from it."""

import math
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from engine.errors import ModelFileError, UnsupportedModelError
from engine.families.emit.attention_state import AttentionShape, KvLayers, plain_kv_layers
from engine.families.emit.mixture import Mixture
from engine.families.rope import Rope, read_rope
from engine.weights.files.metadata import Metadata
from engine.weights.files.weights_file import WeightsFile
from kernels.attention.kv_cache import KvType


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerConfig:
    """Blueprint of layers of attention and feed-forward layers; families add to it."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int  # width of dense layers, or of the expert that all rows go to; 0: there are none
    vocabulary: int
    context_length: int
    epsilon: float
    attention_scale: float  # of queries
    rope: Rope
    mixture: Mixture | None = None  # None: feed-forward layers are dense

    @property
    def attention(self) -> tuple[AttentionShape, ...]:
        """The layers of attention, in order; a family's own may differ from layer to layer."""
        return (self.attention_shape(),) * self.layers

    @property
    def ropes(self) -> tuple[Rope, ...]:
        """The rotary positions of each layer of attention."""
        return (self.rope,) * self.layers

    def attention_shape(self, window: int = 0) -> AttentionShape:
        """The heads that all layers have; window: positions that a row sees, 0 for all."""
        return AttentionShape(
            heads=self.heads,
            kv_heads=self.kv_heads,
            key_dim=self.head_dim,
            value_dim=self.head_dim,
            scale=self.attention_scale,
            window=window,
        )

    def kv_layers(self, kv_type: KvType) -> tuple[KvLayers, ...]:
        """The groups of attention layers, one for each window: the order of block tables."""
        return plain_kv_layers(self.attention, kv_type)

    @property
    def state_bytes(self) -> int:
        """Bytes of one sequence's recurrent state; 0 where the model has none."""
        return 0


Config = TypeVar("Config", bound=TransformerConfig)


def extended(base: TransformerConfig, kind: type[Config], **more: Any) -> Config:
    """A blueprint of a family's own kind: the base's fields, and more."""
    return kind(**{field.name: getattr(base, field.name) for field in fields(base)} | more)


def read_transformer_config(file: WeightsFile) -> TransformerConfig:
    """Read and check the keys of the file's architecture, those of a mixture of experts too.

    Raises ModelFileError where they contradict each other, UnsupportedModelError for what kernels cannot do.
    """
    metadata, name = Metadata(file.metadata, file.path), file.architecture
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelFileError(f"{file.path} is incomplete: it has no token_embd.weight matrix.")
    heads = metadata.layer_integer(f"{name}.attention.head_count", minimum=1)
    hidden = metadata.integer(f"{name}.embedding_length", minimum=1)
    head_dim = metadata.integer(f"{name}.attention.key_length", hidden // heads, minimum=1)
    has_experts = metadata.integer(f"{name}.expert_count", 0) > 0
    config = TransformerConfig(
        layers=metadata.integer(f"{name}.block_count", minimum=1, maximum=1024),
        hidden=hidden,
        heads=heads,
        kv_heads=metadata.layer_integer(f"{name}.attention.head_count_kv", heads, minimum=1),
        head_dim=head_dim,
        ffn=0 if has_experts else metadata.layer_integer(f"{name}.feed_forward_length", minimum=1),
        vocabulary=embedding.shape[0],
        context_length=metadata.integer(f"{name}.context_length", minimum=1),
        epsilon=metadata.positive(f"{name}.attention.layer_norm_rms_epsilon", maximum=1.0),
        attention_scale=_attention_scale(metadata, f"{name}.attention.scale", 1 / math.sqrt(head_dim)),
        rope=read_rope(metadata, name, head_dim),
    )
    _check(config, metadata, name)
    if not has_experts:
        return config
    mixture = read_mixture(metadata, name)
    return extended(config, TransformerConfig, mixture=mixture, ffn=mixture.shared_width)


def read_dense_config(file: WeightsFile) -> TransformerConfig:
    """Like `read_transformer_config`, and refuse a mixture of experts."""
    if Metadata(file.metadata, file.path).integer(f"{file.architecture}.expert_count", 0) > 0:
        raise UnsupportedModelError(
            f"{file.path} is a mixture of experts of the architecture {file.architecture!r}, which this version"
            " cannot run."
        )
    return read_transformer_config(file)


def read_mixture_config(file: WeightsFile) -> TransformerConfig:
    """Like `read_transformer_config`, and raise ModelFileError where there are no experts."""
    Metadata(file.metadata, file.path).integer(f"{file.architecture}.expert_count", minimum=1)
    return read_transformer_config(file)


def read_mixture(metadata: Metadata, architecture: str) -> Mixture:
    """Read and check the `expert_*` keys of an architecture.

    Raises ModelFileError where they contradict each other, UnsupportedModelError for what kernels cannot do.
    """
    experts = metadata.integer(f"{architecture}.expert_count", minimum=1, maximum=1 << 16)
    mixture = Mixture(
        experts=experts,
        active=metadata.integer(f"{architecture}.expert_used_count", minimum=1, maximum=experts),
        width=metadata.layer_integer(f"{architecture}.expert_feed_forward_length", minimum=1),
        shared_width=metadata.layer_integer(f"{architecture}.expert_shared_feed_forward_length", 0),
        renormalize=metadata.flag(f"{architecture}.expert_weights_norm", True),
        scale=_expert_scale(metadata, f"{architecture}.expert_weights_scale"),
    )
    if mixture.width % 16 or mixture.shared_width % 16:
        raise UnsupportedModelError(
            f"{metadata.path} has experts of {mixture.width} and shared ones of {mixture.shared_width} values;"
            " this version needs multiples of 16."
        )
    return mixture


def _attention_scale(metadata: Metadata, key: str, usual: float) -> float:
    """The scale of queries; 0 says, as in llama.cpp, that it is the usual one."""
    return usual if metadata.number(key, 0.0) == 0 else metadata.positive(key, maximum=1e6)


def _expert_scale(metadata: Metadata, key: str) -> float:
    """The scale of the experts' weights; 0 says, as in llama.cpp, that there is none."""
    return 1.0 if metadata.number(key, 1.0) == 0 else metadata.positive(key, 1.0, maximum=1e6)


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
