"""Mixtures of experts of Hugging Face -> GGUF's names and keys: one tensor a layer for all gates, all ups, all downs.

Folders hold the experts merged, `mlp.experts.gate_up_proj` [experts, gates then ups, hidden] and
`mlp.experts.down_proj`, or one tensor an expert, `mlp.experts.7.gate_proj.weight`. qwen3moe: qwen3's attention, and a
mixture in every layer.
"""

import re
from collections import defaultdict
from dataclasses import replace

from engine.errors import ModelFileError, UnsupportedModelError
from engine.weights.files.metadata import Metadata
from engine.weights.files.safetensors_file import StoredTensor
from engine.weights.mapping.config import attention_metadata, rope_metadata, rope_parameters
from engine.weights.mapping.dense import DEFAULT_HEAD_DIM, check_common
from engine.weights.mapping.names import ATTENTION, HEAD_NORMS, Stored, in_layers, layer_of, text_tensors, translated
from engine.weights.mapping.recipe import Mapped, Recipe, half_of_each

_SINGLE = re.compile(r"mlp\.experts\.(\d{1,5})\.(gate|up|down)_proj\.weight", re.ASCII)
_MERGED = re.compile(r"mlp\.experts\.(gate_up|down)_proj", re.ASCII)


def is_expert(name: str) -> bool:
    """Whether a plain name is that of an expert's tensor, or of all experts'."""
    place = layer_of(name)
    return place is not None and (_SINGLE.fullmatch(place[1]) or _MERGED.fullmatch(place[1])) is not None


def expert_count(config: Metadata) -> int:
    """transformers 4 and 5 call it by different names."""
    key = "num_experts" if "num_experts" in config else "num_local_experts"
    count = config.integer(key, minimum=1, maximum=4096)
    if config.values.get("num_local_experts", count) != count:
        raise ModelFileError(f"{config.path} is broken: its num_experts and its num_local_experts differ.")
    return count


def expert_recipes(tensors: Stored, config: Metadata) -> dict[str, Recipe]:
    """The recipes of all `ffn_*_exps.weight`, from those of the tensors that `is_expert` picks."""
    count = expert_count(config)
    recipes: dict[str, Recipe] = {}
    single: dict[str, dict[int, StoredTensor]] = defaultdict(dict)
    for name, tensor in tensors.items():
        place = layer_of(name)
        assert place is not None
        prefix = f"blk.{place[0]}.ffn_"
        if (one := _SINGLE.fullmatch(place[1])) is not None:
            single[f"{prefix}{one[2]}_exps.weight"][int(one[1])] = tensor
        else:
            recipes |= _merged(prefix, place[1], tensor, count, config)
    return recipes | {name: _joined(name, experts, count, config) for name, experts in single.items()}


def _merged(prefix: str, kind: str, tensor: StoredTensor, count: int, config: Metadata) -> dict[str, Recipe]:
    if len(tensor.shape) != 3 or tensor.shape[0] != count:
        raise ModelFileError(f"{config.path} does not fit its tensors: {tensor.name} does not hold {count} experts.")
    if kind.endswith("down_proj"):
        return {f"{prefix}down_exps.weight": Recipe(shape=tensor.shape, sources=(tensor.name,))}
    _, rows, columns = tensor.shape
    if rows % 2:
        raise ModelFileError(f"{config.path} does not fit its tensors: {tensor.name} has no equal gates and ups.")
    shape = (count, rows // 2, columns)
    return {
        f"{prefix}{kind}_exps.weight": Recipe(shape=shape, sources=(tensor.name,), rows=half_of_each(rows // 2, half))
        for half, kind in enumerate(("gate", "up"))
    }


def _joined(name: str, experts: dict[int, StoredTensor], count: int, config: Metadata) -> Recipe:
    missing = next((number for number in range(count) if number not in experts), None)
    if missing is not None or len(experts) != count:
        what = f"expert {missing} is missing" if missing is not None else f"there are {len(experts)} experts"
        raise ModelFileError(f"{config.path} does not fit its tensors: of the {count} of {name}, {what}.")
    sources = tuple(experts[number].name for number in range(count))
    return Recipe(shape=(count, *experts[0].shape), sources=sources)


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
