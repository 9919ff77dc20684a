"""qwen3next (Qwen3-Next): rows are stored by key head, and GGUF has all queries, then all keys, then all values."""

from dataclasses import replace

from engine.errors import UnsupportedModelError
from engine.weights.files.metadata import Metadata
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
from engine.weights.mapping.names import Stored, check_size, in_layers
from engine.weights.mapping.qwen2 import check_common
from engine.weights.mapping.recipe import Mapped, Recipe, rows_by_key_head

_PROJECTIONS = {
    "linear_attn.in_proj_qkvz.weight": "ssm_in.weight",
    "linear_attn.in_proj_ba.weight": "ssm_ba.weight",
}


def map_qwen3next(config: Metadata, stored: Stored) -> Mapped:
    """Qwen3-Next-80B-A3B."""
    check_common(config)
    if not config.flag("norm_topk_prob", True):
        raise UnsupportedModelError(f"{config.path} does not scale its experts' shares to 1, which GGUF cannot say.")
    if config.integer("decoder_sparse_step", 1) != 1 or config.values.get("mlp_only_layers"):
        raise UnsupportedModelError(f"{config.path} has layers without experts, which this version cannot run.")
    tensors, drafts = hybrid_tensors(config, stored)
    recipes = hybrid_recipes(tensors, RECURRENT | _PROJECTIONS | MIXTURE, config)
    heads = read_heads(config)
    for name in in_layers(recipes, "ssm_in.weight"):
        recipes |= _parted(name, recipes.pop(name), heads, config)
    return Mapped("qwen3next", hybrid_metadata(config, drafts) | mixture_metadata(config), recipes)


def _parted(name: str, joined: Recipe, heads: Heads, config: Metadata) -> dict[str, Recipe]:
    """The projections to queries, keys and values, and to gates, of one that has them by key head."""
    shares = (heads.key_dim, heads.key_dim, *2 * (heads.value_rows // heads.keys,))
    check_size(name, joined.shape[0], heads.keys * sum(shares), config)
    block = name.removesuffix("ssm_in.weight")
    parts = {
        "attn_qkv.weight": rows_by_key_head(heads.keys, shares, (0, 1, 2)),
        "attn_gate.weight": rows_by_key_head(heads.keys, shares, (3,)),
    }
    return {
        block + kind: replace(joined, shape=(len(order), joined.shape[1]), rows=order.__getitem__)
        for kind, order in parts.items()
    }
