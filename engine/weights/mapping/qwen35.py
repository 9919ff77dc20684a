"""qwen35 and qwen35moe (Qwen3.5 and 3.6): value heads are stored by their key head, and GGUF has them tiled."""

from dataclasses import replace

import numpy as np

from engine.weights.files.gguf_tensors import kind_of
from engine.weights.files.metadata import Metadata
from engine.weights.mapping.config import Values, rope_parameters
from engine.weights.mapping.hybrid import (
    MIXTURE,
    RECURRENT,
    Heads,
    hybrid_metadata,
    hybrid_recipes,
    hybrid_tensors,
    mixture_metadata,
    read_heads,
)
from engine.weights.mapping.names import FEED_FORWARD, Stored, check_size
from engine.weights.mapping.qwen2 import check_common
from engine.weights.mapping.recipe import Mapped, Recipe

_PROJECTIONS = {
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
    "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
}
_DENSE = {name: kind for name, kind in FEED_FORWARD.items() if name.startswith("mlp.")}


def map_qwen35(config: Metadata, stored: Stored) -> Mapped:
    """Qwen3.5, dense, text alone."""
    values: Values = {"feed_forward_length": config.integer("intermediate_size", minimum=1)}
    return _map("qwen35", config, stored, _DENSE, values)


def map_qwen35moe(config: Metadata, stored: Stored) -> Mapped:
    """Qwen3.5-MoE and Qwen3.6-35B-A3B, text alone."""
    return _map("qwen35moe", config, stored, MIXTURE, mixture_metadata(config))


def _map(architecture: str, config: Metadata, stored: Stored, feed_forward: dict[str, str], values: Values) -> Mapped:
    check_common(config)
    tensors, drafts = hybrid_tensors(config, stored)
    recipes = hybrid_recipes(tensors, RECURRENT | _PROJECTIONS | feed_forward, config)
    heads = read_heads(config)
    tiled = {name: _tiled(name, recipe, heads, config) for name, recipe in recipes.items()}
    return Mapped(architecture, hybrid_metadata(config, drafts) | _sections(config) | values, tiled)


def _sections(config: Metadata) -> Values:
    """How the rotary pairs are shared by time, height and width, which are equal in text."""
    sections = rope_parameters(config).values.get("mrope_section")
    if isinstance(sections, list) and len(sections) == 3 and all(type(size) is int for size in sections):
        return {"rope.dimension_sections": np.array([*sections, 0], np.int32)}
    return {}


def _tiled(name: str, recipe: Recipe, heads: Heads, config: Metadata) -> Recipe:
    rows = recipe.shape[0]
    match kind_of(name):
        case "ssm_a" | "ssm_dt.bias":
            return replace(recipe, columns=heads.tiled(1)(np.arange(rows)))
        case "ssm_alpha.weight" | "ssm_beta.weight":
            check_size(name, rows, heads.values, config)
            return replace(recipe, rows=heads.tiled(1))
        case "attn_gate.weight":
            check_size(name, rows, heads.value_rows, config)
            return replace(recipe, rows=heads.tiled(heads.value_dim))
        case "attn_qkv.weight" | "ssm_conv1d.weight":
            check_size(name, rows, heads.first_value_row + heads.value_rows, config)
            return replace(recipe, rows=heads.tiled(heads.value_dim, heads.first_value_row))
        case "ssm_out.weight":
            return replace(recipe, columns=heads.tiled(heads.value_dim)(np.arange(heads.value_rows)))
    return recipe
