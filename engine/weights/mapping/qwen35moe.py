"""qwen35moe (Qwen3.5 and 3.6 mixtures): Gated DeltaNet in most layers, gated attention in the others, a draft head.

Every norm is stored around zero but the one within Gated DeltaNet. Value heads are stored by their key head, and GGUF
has them tiled. The draft head (`mtp.*`) becomes one more block.
"""

from dataclasses import dataclass, replace

import numpy as np

from engine.errors import ModelFileError, UnsupportedModelError
from engine.weights.mapping.config import Values, attention_metadata, rope_metadata, rope_parameters
from engine.weights.mapping.experts import expert_count, expert_recipes, is_expert
from engine.weights.mapping.names import ATTENTION, HEAD_NORMS, Stored, check_size, text_tensors, translated
from engine.weights.mapping.qwen2 import check_common
from engine.weights.mapping.recipe import Mapped, Recipe, RowOrder, minus_exp, plus_one, tiled_heads
from engine.weights.metadata import Metadata

_MIXTURE = {
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
    "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight",
    "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight",
}
_RECURRENT = {
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
    "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
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
class _Heads:
    """Of Gated DeltaNet."""

    keys: int
    values: int
    key_dim: int
    value_dim: int

    @property
    def first_value_row(self) -> int:
        """In rows that hold queries, keys and values."""
        return 2 * self.keys * self.key_dim

    def order(self, width: int, start: int = 0) -> RowOrder:
        return tiled_heads(self.keys, self.values // self.keys, width, start)


def map_qwen35moe(config: Metadata, stored: Stored) -> Mapped:
    """Qwen3.5-MoE and Qwen3.6-35B-A3B, text alone."""
    check_common(config)
    heads, layers = _read_heads(config), config.integer("num_hidden_layers", minimum=1, maximum=1024)
    tensors = {_in_trunk(name, layers): tensor for name, tensor in text_tensors(stored).items()}
    drafts = 1 if any(name.startswith(f"model.layers.{layers}.") for name in tensors) else 0
    experts = {name: tensor for name, tensor in tensors.items() if is_expert(name)}
    rest = {name: tensor for name, tensor in tensors.items() if name not in experts}
    names = ATTENTION | HEAD_NORMS | _MIXTURE | _RECURRENT | {name: name for name in _DRAFT.values()}
    recipes = translated(rest, names, config) | expert_recipes(experts, config)
    recipes = {name: _changed(name, recipe, heads, config) for name, recipe in recipes.items()}
    return Mapped("qwen35moe", _metadata(config, heads, layers, drafts), recipes)


def _read_heads(config: Metadata) -> _Heads:
    keys = config.integer("linear_num_key_heads", minimum=1)
    values = config.integer("linear_num_value_heads", minimum=1)
    if values % keys:
        raise ModelFileError(f"{config.path} is broken: {values} value heads do not share {keys} key heads evenly.")
    key_dim = config.integer("linear_key_head_dim", minimum=1)
    return _Heads(keys, values, key_dim, config.integer("linear_value_head_dim", minimum=1))


def _in_trunk(name: str, layers: int) -> str:
    """The draft head's tensors get the names that they would have in a further layer."""
    if name.startswith(_DRAFT_LAYER):
        return f"model.layers.{layers}.{name.removeprefix(_DRAFT_LAYER)}"
    return f"model.layers.{layers}.{_DRAFT[name]}" if name in _DRAFT else name


def _metadata(config: Metadata, heads: _Heads, layers: int, drafts: int) -> Values:
    rope = rope_parameters(config)
    values = attention_metadata(config) | rope_metadata(config, rope)
    head_dim = config.integer("head_dim", minimum=2)
    values |= {
        "block_count": layers + drafts,
        "rope.dimension_count": int(head_dim * rope.number("partial_rotary_factor", 0.25)),
        "expert_count": expert_count(config),
        "expert_used_count": config.integer("num_experts_per_tok", minimum=1),
        "expert_feed_forward_length": config.integer("moe_intermediate_size", minimum=1),
        "expert_shared_feed_forward_length": config.integer("shared_expert_intermediate_size", minimum=1),
        "ssm.conv_kernel": config.integer("linear_conv_kernel_dim", minimum=1),
        "ssm.state_size": heads.key_dim,
        "ssm.group_count": heads.keys,
        "ssm.time_step_rank": heads.values,
        "ssm.inner_size": heads.value_dim * heads.values,
        "full_attention_interval": _interval(config, layers),
    }
    if drafts:
        values["nextn_predict_layers"] = drafts
    sections = rope.values.get("mrope_section")
    if isinstance(sections, list) and len(sections) == 3 and all(type(size) is int for size in sections):
        values["rope.dimension_sections"] = np.array([*sections, 0], np.int32)
    return values


def _interval(config: Metadata, layers: int) -> int:
    """Every how many layers one attends to all positions; the others are recurrent."""
    interval = config.integer("full_attention_interval", 4, minimum=1)
    usual = ["linear_attention" if (i + 1) % interval else "full_attention" for i in range(layers)]
    if config.values.get("layer_types", usual) != usual:
        raise UnsupportedModelError(f"{config.path} has attention in other layers than each {interval}th.")
    return interval


def _changed(name: str, recipe: Recipe, heads: _Heads, config: Metadata) -> Recipe:
    kind = name.split(".", 2)[-1] if name.startswith("blk.") else name
    if kind.endswith("norm.weight") and kind != "ssm_norm.weight":
        return replace(recipe, change=plus_one)
    rows, values = recipe.shape[0], heads.values * heads.value_dim
    match kind:
        case "ffn_gate_inp.weight":
            return replace(recipe, float32=True)
        case "ffn_gate_inp_shexp.weight":
            check_size(name, rows, 1, config)
            return replace(recipe, shape=recipe.shape[-1:], float32=True)
        case "ssm_a" | "ssm_dt.bias":
            check_size(name, rows, heads.values, config)
            order = heads.order(1)(np.arange(rows))
            return replace(recipe, columns=order, change=minus_exp if kind == "ssm_a" else None)
        case "ssm_alpha.weight" | "ssm_beta.weight":
            check_size(name, rows, heads.values, config)
            return replace(recipe, rows=heads.order(1))
        case "attn_gate.weight":
            check_size(name, rows, values, config)
            return replace(recipe, rows=heads.order(heads.value_dim))
        case "attn_qkv.weight" | "ssm_conv1d.weight":
            check_size(name, rows, heads.first_value_row + values, config)
            order_rows = heads.order(heads.value_dim, heads.first_value_row)
            shape, conv = (rows, recipe.shape[-1]), kind == "ssm_conv1d.weight"
            return replace(recipe, shape=shape, rows=order_rows, float32=conv)
        case "ssm_out.weight":
            check_size(name, recipe.shape[-1], values, config)
            return replace(recipe, columns=heads.order(heads.value_dim)(np.arange(values)))
    return recipe
