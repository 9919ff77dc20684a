"""llama: query and key rows change their order, so that rotary pairs are neighbours, as GGUF has them."""

from dataclasses import replace

import numpy as np

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
