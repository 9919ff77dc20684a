"""Which stored tensor becomes which GGUF tensor, for what the families have in common."""

import re
from collections.abc import Iterable, Mapping

from engine.errors import ModelFileError, UnsupportedModelError
from engine.weights.files.metadata import Metadata
from engine.weights.files.safetensors_file import StoredTensor
from engine.weights.mapping.recipe import Recipe

Stored = Mapping[str, StoredTensor]

TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
ATTENTION = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
}
HEAD_NORMS = {"self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight"}
FEED_FORWARD = {
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
# What a text model has no use for: towers of other senses, and tables that follow from the configuration.
_IGNORED = re.compile(r"(model\.)?(visual|vision_tower|vision_model|multi_modal_projector|audio_tower)\.|.*\.inv_freq$")
_LAYER = re.compile(r"model\.layers\.(\d{1,5})\.(.+)", re.ASCII)


def plain_name(stored_name: str) -> str | None:
    """The name that a text model without other senses would give the tensor; None for those that are ignored."""
    name = stored_name.replace("language_model.model.", "model.", 1).replace("language_model.", "", 1)
    return None if _IGNORED.match(name) else name


def text_tensors(stored: Stored) -> dict[str, StoredTensor]:
    """Plain name -> tensor."""
    named = ((plain_name(name), tensor) for name, tensor in stored.items())
    return {name: tensor for name, tensor in named if name is not None}


def translated(tensors: Stored, layer: Mapping[str, str], config: Metadata) -> dict[str, Recipe]:
    """A recipe for each tensor that is taken as it is: those of TOP, and in layers those of `layer`.

    Raises UnsupportedModelError for a tensor of another name: to leave it out would silently give another model.
    """
    recipes = {_gguf_name(name, layer, config): as_stored(tensor) for name, tensor in tensors.items()}
    drop_tied_head(recipes, config)
    return recipes


def drop_tied_head(recipes: dict[str, Recipe], config: Metadata) -> None:
    """Leave out the head where it is the embedding. Raises ModelFileError where it should be there, but is not."""
    if config.flag("tie_word_embeddings", "output.weight" not in recipes):
        recipes.pop("output.weight", None)
    elif "output.weight" not in recipes:
        raise ModelFileError(
            f"{config.path} says that the model has a head of its own, but no tensor is lm_head.weight."
        )


def as_stored(tensor: StoredTensor) -> Recipe:
    """Taken as it is, vectors widened."""
    return Recipe(shape=tensor.shape, sources=(tensor.name,), float32=len(tensor.shape) == 1)


def layer_of(name: str) -> tuple[int, str] | None:
    """The number of a layer and the name within it."""
    match = _LAYER.fullmatch(name)
    return None if match is None else (int(match[1]), match[2])


def in_layers(recipes: Iterable[str], *kinds: str) -> list[str]:
    """Those of the GGUF names that are of one of these kinds: "attn_q.weight", ..."""
    return [name for name in recipes if name.startswith("blk.") and name.split(".", 2)[2] in kinds]


def check_size(name: str, size: int, expected: int, config: Metadata) -> None:
    """Raise ModelFileError unless a tensor has as many rows, or columns, as the configuration says."""
    if size != expected:
        raise ModelFileError(
            f"{config.path} does not fit its tensors: {name} has {size} rows or columns, not {expected}."
        )


def _gguf_name(name: str, layer: Mapping[str, str], config: Metadata) -> str:
    if name in TOP:
        return TOP[name]
    place = layer_of(name)
    if place is not None and place[1] in layer:
        return f"blk.{place[0]}.{layer[place[1]]}"
    raise UnsupportedModelError(
        f"{config.path} belongs to a model with the tensor {name}, which this version does not know; use a GGUF file."
    )
