"""The hybrids of Hugging Face -> GGUF's names and keys: Gated DeltaNet in most layers, gated attention, a draft head.

qwen35 and qwen35moe (Qwen3.5 and 3.6): value heads are stored by their key head, and GGUF has them tiled. qwen3next
(Qwen3-Next): rows are stored by key head, and GGUF has all queries, then all keys, then all values.

Every norm is stored around zero but the one within Gated DeltaNet. The draft head (`mtp.*`) becomes one more block.
"""

from dataclasses import dataclass, replace

import numpy as np

from engine.errors import ModelFileError, UnsupportedModelError
from engine.weights.files.gguf_tensors import kind_of
from engine.weights.files.metadata import Metadata
from engine.weights.mapping.config import Values, attention_metadata, rope_metadata, rope_parameters
from engine.weights.mapping.dense import check_common
from engine.weights.mapping.mixture import expert_count, expert_recipes, is_expert
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
from engine.weights.mapping.recipe import Mapped, Recipe, RowOrder, minus_exp, plus_one, rows_by_key_head, tiled_heads

NORMS = {"post_attention_layernorm.weight": "post_attention_norm.weight"}
MIXTURE = {
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
    "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight",
    "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight",
}
RECURRENT = {
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight",
    "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.out_proj.weight": "ssm_out.weight",
}
_DRAFT = {
    "mtp.fc.weight": "nextn.eh_proj.weight",
    "mtp.pre_fc_norm_embedding.weight": "nextn.enorm.weight",
    "mtp.pre_fc_norm_hidden.weight": "nextn.hnorm.weight",
    "mtp.norm.weight": "nextn.shared_head_norm.weight",
}
_DRAFT_LAYER = "mtp.layers.0."


@dataclass(frozen=True, slots=True)
class Heads:
    """Of Gated DeltaNet."""

    keys: int
    values: int
    key_dim: int
    value_dim: int

    @property
    def first_value_row(self) -> int:
        """In rows that hold queries, keys and values."""
        return 2 * self.keys * self.key_dim

    @property
    def value_rows(self) -> int:
        return self.values * self.value_dim

    def tiled(self, width: int, start: int = 0) -> RowOrder:
        return tiled_heads(self.keys, self.values // self.keys, width, start)


def read_heads(config: Metadata) -> Heads:
    keys = config.integer("linear_num_key_heads", minimum=1)
    values = config.integer("linear_num_value_heads", minimum=1)
    if values % keys:
        raise ModelFileError(f"{config.path} is broken: {values} value heads do not share {keys} key heads evenly.")
    key_dim = config.integer("linear_key_head_dim", minimum=1)
    return Heads(keys, values, key_dim, config.integer("linear_value_head_dim", minimum=1))


def hybrid_tensors(config: Metadata, stored: Stored) -> tuple[Stored, int]:
    """The text model's tensors by plain name, the draft head's as those of a further layer; and how many draft."""
    layers = config.integer("num_hidden_layers", minimum=1, maximum=1024)
    tensors = {_in_trunk(name, layers): tensor for name, tensor in text_tensors(stored).items()}
    return tensors, int(any(name.startswith(f"model.layers.{layers}.") for name in tensors))


def hybrid_recipes(tensors: Stored, layer: dict[str, str], config: Metadata) -> dict[str, Recipe]:
    """A recipe for each tensor; `layer` has the names in layers beside those of attention and the draft head.

    What is common to all value orders is changed here: norms, decays and routers.
    """
    experts = {name: tensor for name, tensor in tensors.items() if is_expert(name)}
    rest = {name: tensor for name, tensor in tensors.items() if name not in experts}
    names = ATTENTION | HEAD_NORMS | NORMS | layer | {name: name for name in _DRAFT.values()}
    recipes = translated(rest, names, config)
    if experts:
        recipes |= expert_recipes(experts, config)
    heads = read_heads(config)
    return {name: _changed(name, recipe, heads, config) for name, recipe in recipes.items()}


def hybrid_metadata(config: Metadata, drafts: int) -> Values:
    """The keys of attention, positions, Gated DeltaNet and draft head."""
    heads, rope = read_heads(config), rope_parameters(config)
    values = attention_metadata(config) | rope_metadata(config, rope)
    layers, head_dim = config.integer("num_hidden_layers", minimum=1), config.integer("head_dim", minimum=2)
    values |= {
        "block_count": layers + drafts,
        "rope.dimension_count": int(head_dim * rope.share("partial_rotary_factor", 0.25)),
        "ssm.conv_kernel": config.integer("linear_conv_kernel_dim", minimum=1),
        "ssm.state_size": heads.key_dim,
        "ssm.group_count": heads.keys,
        "ssm.time_step_rank": heads.values,
        "ssm.inner_size": heads.value_rows,
        "full_attention_interval": _interval(config, layers),
    }
    return values | {"nextn_predict_layers": drafts} if drafts else values


def mixture_metadata(config: Metadata) -> Values:
    """The keys of experts."""
    return {
        "expert_count": expert_count(config),
        "expert_used_count": config.integer("num_experts_per_tok", minimum=1),
        "expert_feed_forward_length": config.integer("moe_intermediate_size", minimum=1),
        "expert_shared_feed_forward_length": config.integer("shared_expert_intermediate_size", minimum=1),
    }


def _in_trunk(name: str, layers: int) -> str:
    if name.startswith(_DRAFT_LAYER):
        return f"model.layers.{layers}.{name.removeprefix(_DRAFT_LAYER)}"
    return f"model.layers.{layers}.{_DRAFT[name]}" if name in _DRAFT else name


def _interval(config: Metadata, layers: int) -> int:
    """Every how many layers one attends to all positions; the others are recurrent."""
    interval = config.integer("full_attention_interval", 4, minimum=1)
    usual = ["linear_attention" if (i + 1) % interval else "full_attention" for i in range(layers)]
    if config.values.get("layer_types", usual) != usual:
        raise UnsupportedModelError(f"{config.path} has attention in other layers than each {interval}th.")
    return interval


def _changed(name: str, recipe: Recipe, heads: Heads, config: Metadata) -> Recipe:
    kind, rows = kind_of(name), recipe.shape[0]
    if kind.endswith("norm.weight") and kind != "ssm_norm.weight":
        return replace(recipe, change=plus_one)
    match kind:
        case "ffn_gate_inp.weight":
            return replace(recipe, float32=True)
        case "ffn_gate_inp_shexp.weight":
            check_size(name, rows, 1, config)
            return replace(recipe, shape=recipe.shape[-1:], float32=True)
        case "ssm_a" | "ssm_dt.bias":
            check_size(name, rows, heads.values, config)
            return replace(recipe, change=minus_exp if kind == "ssm_a" else None)
        case "ssm_conv1d.weight":
            check_size(name, rows, heads.first_value_row + heads.value_rows, config)
            return replace(recipe, shape=(rows, recipe.shape[-1]), float32=True)
        case "ssm_out.weight":
            check_size(name, recipe.shape[-1], heads.value_rows, config)
    return recipe


_SPLIT_PROJECTIONS = {
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
    recipes = hybrid_recipes(tensors, RECURRENT | _SPLIT_PROJECTIONS | feed_forward, config)
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


_JOINED_PROJECTIONS = {
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
    recipes = hybrid_recipes(tensors, RECURRENT | _JOINED_PROJECTIONS | MIXTURE, config)
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
