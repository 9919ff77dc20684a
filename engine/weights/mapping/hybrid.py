"""What the mappings of Qwen's hybrid models share: Gated DeltaNet in most layers, gated attention, a draft head.

Every norm is stored around zero but the one within Gated DeltaNet. The draft head (`mtp.*`) becomes one more block.
"""

from dataclasses import dataclass, replace

from engine.errors import ModelFileError, UnsupportedModelError
from engine.weights.files.gguf_tensors import kind_of
from engine.weights.files.metadata import Metadata
from engine.weights.mapping.config import Values, attention_metadata, rope_metadata, rope_parameters
from engine.weights.mapping.experts import expert_count, expert_recipes, is_expert
from engine.weights.mapping.names import ATTENTION, HEAD_NORMS, Stored, check_size, text_tensors, translated
from engine.weights.mapping.recipe import Recipe, RowOrder, minus_exp, plus_one, tiled_heads

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
