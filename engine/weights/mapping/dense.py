"""Llama, Qwen2 and Qwen3 of Hugging Face -> GGUF's names and keys.

llama: query and key rows change their order, so that rotary pairs are neighbours, as GGUF has them; any matrix may
have a bias. qwen2: biases on queries, keys and values. qwen3: norms on the heads of queries and keys.
"""

from dataclasses import replace

import numpy as np

from engine.errors import UnsupportedModelError
from engine.weights.files.metadata import Metadata
from engine.weights.mapping.config import (
    attention_metadata,
    check_activation,
    frequency_divisors,
    rope_metadata,
    rope_parameters,
)
from engine.weights.mapping.names import (
    ATTENTION,
    FEED_FORWARD,
    HEAD_NORMS,
    Stored,
    check_size,
    in_layers,
    text_tensors,
    translated,
)
from engine.weights.mapping.recipe import Mapped, Recipe, interleaved_pairs

_BIASES = {
    name.replace(".weight", ".bias"): kind.replace(".weight", ".bias")
    for name, kind in (ATTENTION | FEED_FORWARD).items()
    if "_proj." in name
}


def map_llama(config: Metadata, stored: Stored) -> Mapped:
    """Llama 2 and 3, SmolLM2, TinyLlama, ..."""
    check_activation(config, "silu")
    values, rope = attention_metadata(config), rope_parameters(config)
    head_dim = config.integer("head_dim", config.integer("hidden_size") // config.integer("num_attention_heads"))
    turned = int(head_dim * rope.share("partial_rotary_factor", 1.0))
    values |= rope_metadata(config, rope, has_divisors=True) | {
        "feed_forward_length": config.integer("intermediate_size", minimum=1),
        "rope.dimension_count": turned,
    }
    recipes = translated(text_tensors(stored), ATTENTION | FEED_FORWARD | _BIASES, config)
    for name in in_layers(recipes, "attn_q.weight", "attn_k.weight", "attn_q.bias", "attn_k.bias"):
        recipes[name] = _paired(name, recipes[name], head_dim, config)
    mapped = Mapped("llama", values, recipes)
    divisors = frequency_divisors(rope, 10000.0, turned)
    if divisors is not None:
        mapped.made["rope_freqs.weight"] = divisors
    return mapped


def _paired(name: str, recipe: Recipe, head_dim: int, config: Metadata) -> Recipe:
    heads = config.integer("num_attention_heads")
    if "attn_k" in name:
        heads = config.integer("num_key_value_heads", heads)
    check_size(name, recipe.shape[0], heads * head_dim, config)
    order = interleaved_pairs(head_dim)
    if name.endswith(".bias"):
        return replace(recipe, columns=order(np.arange(recipe.shape[0])))
    return replace(recipe, rows=order)


_QKV_BIASES = {f"self_attn.{letter}_proj.bias": f"attn_{letter}.bias" for letter in "qkv"}


def map_qwen2(config: Metadata, stored: Stored) -> Mapped:
    """Qwen2 and Qwen2.5."""
    check_common(config)
    values = attention_metadata(config) | rope_metadata(config, rope_parameters(config))
    values["feed_forward_length"] = config.integer("intermediate_size", minimum=1)
    return Mapped("qwen2", values, translated(text_tensors(stored), ATTENTION | _QKV_BIASES | FEED_FORWARD, config))


def check_common(config: Metadata) -> None:
    """Raise UnsupportedModelError for what no Qwen model that this version runs does."""
    check_activation(config, "silu")
    if config.flag("use_sliding_window", False):
        raise UnsupportedModelError(f"{config.path} uses sliding windows, which this version cannot do for its family.")


DEFAULT_HEAD_DIM = 128


def map_qwen3(config: Metadata, stored: Stored) -> Mapped:
    """Qwen3, dense."""
    check_common(config)
    values = attention_metadata(config, DEFAULT_HEAD_DIM) | rope_metadata(config, rope_parameters(config))
    values["feed_forward_length"] = config.integer("intermediate_size", minimum=1)
    return Mapped("qwen3", values, translated(text_tensors(stored), ATTENTION | HEAD_NORMS | FEED_FORWARD, config))


# By model_type in config.json.
DENSE = {"llama": map_llama, "qwen2": map_qwen2, "qwen3": map_qwen3}
