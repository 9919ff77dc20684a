"""qwen3moe: qwen3's attention, and a mixture of experts in every layer."""

from dataclasses import replace

from engine.errors import UnsupportedModelError
from engine.weights.files.metadata import Metadata
from engine.weights.mapping.config import attention_metadata, rope_metadata, rope_parameters
from engine.weights.mapping.experts import expert_count, expert_recipes, is_expert
from engine.weights.mapping.names import ATTENTION, HEAD_NORMS, Stored, in_layers, text_tensors, translated
from engine.weights.mapping.qwen2 import check_common
from engine.weights.mapping.qwen3 import DEFAULT_HEAD_DIM
from engine.weights.mapping.recipe import Mapped

_ROUTER = {"post_attention_layernorm.weight": "ffn_norm.weight", "mlp.gate.weight": "ffn_gate_inp.weight"}


def map_qwen3moe(config: Metadata, stored: Stored) -> Mapped:
    """Qwen3 mixtures: 30B-A3B, 235B-A22B, Coder."""
    check_common(config)
    if not config.flag("norm_topk_prob", False):
        raise UnsupportedModelError(f"{config.path} does not scale its experts' shares to 1, which GGUF cannot say.")
    if config.integer("decoder_sparse_step", 1) != 1 or config.values.get("mlp_only_layers"):
        raise UnsupportedModelError(f"{config.path} has layers without experts, which this version cannot run.")
    values = attention_metadata(config, DEFAULT_HEAD_DIM) | rope_metadata(config, rope_parameters(config))
    values |= {
        "feed_forward_length": config.integer("intermediate_size", minimum=1),
        "expert_count": expert_count(config),
        "expert_used_count": config.integer("num_experts_per_tok", minimum=1),
        "expert_feed_forward_length": config.integer("moe_intermediate_size", minimum=1),
    }
    tensors = text_tensors(stored)
    experts = {name: tensor for name, tensor in tensors.items() if is_expert(name)}
    rest = {name: tensor for name, tensor in tensors.items() if name not in experts}
    recipes = translated(rest, ATTENTION | HEAD_NORMS | _ROUTER, config) | expert_recipes(experts, config)
    for name in in_layers(recipes, "ffn_gate_inp.weight"):
        recipes[name] = replace(recipes[name], float32=True)
    return Mapped("qwen3moe", values, recipes)
