"""gemma3: norms are stored around zero, and two kinds of layers turn positions differently."""

from dataclasses import replace

from engine.errors import ModelFileError, UnsupportedModelError
from engine.weights.files.metadata import Metadata
from engine.weights.mapping.config import attention_metadata, check_activation, float32, rope_metadata, rope_parameters
from engine.weights.mapping.names import ATTENTION, FEED_FORWARD, HEAD_NORMS, Stored, text_tensors, translated
from engine.weights.mapping.recipe import Mapped, plus_one

# What transformers takes where a multi-modal config.json says nothing of the text model.
_DEFAULTS = {
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
    "sliding_window": 4096,
    "query_pre_attn_scalar": 256,
    "tie_word_embeddings": True,
}
_PERIOD = 6  # every sixth layer sees all positions
_NORMS = {
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "pre_feedforward_layernorm.weight": "ffn_norm.weight",
    "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
}


def map_gemma3(config: Metadata, stored: Stored) -> Mapped:
    """Gemma 3, text alone."""
    config = Metadata({**_DEFAULTS, **config.values}, config.path)
    check_activation(config, "gelu_pytorch_tanh")
    _check_layers(config)
    values = attention_metadata(config)
    values |= rope_metadata(config, rope_parameters(config, "full_attention"), 1e6)
    values |= {
        "feed_forward_length": config.integer("intermediate_size", minimum=1),
        "attention.sliding_window": config.integer("sliding_window", minimum=1),
        "rope.freq_base_swa": float32(_local_base(config)),
    }
    if config.number("query_pre_attn_scalar") != config.integer("head_dim", minimum=1):  # of 27B
        values["attention.scale"] = float32(config.positive("query_pre_attn_scalar", maximum=1e6) ** -0.5)
    recipes = translated(text_tensors(stored), ATTENTION | HEAD_NORMS | FEED_FORWARD | _NORMS, config)
    for name, recipe in recipes.items():
        if name.endswith("norm.weight"):
            recipes[name] = replace(recipe, change=plus_one)
    return Mapped("gemma3", values, recipes)


def _local_base(config: Metadata) -> float:
    new = config.values.get("rope_parameters")
    if isinstance(new, dict) and isinstance(new.get("sliding_attention"), dict):
        sliding = rope_parameters(config, "sliding_attention")
        if sliding.text("rope_type", "default") != "default":
            raise UnsupportedModelError(
                f"{config.path} scales the positions of its sliding layers, unlike any Gemma 3."
            )
        return sliding.number("rope_theta", 10000.0)
    return config.number("rope_local_base_freq", 10000.0)


def _check_layers(config: Metadata) -> None:
    layers = config.integer("num_hidden_layers", minimum=1, maximum=1024)
    usual = ["full_attention" if (i + 1) % _PERIOD == 0 else "sliding_attention" for i in range(layers)]
    types = config.values.get("layer_types", usual)
    period = config.integer("sliding_window_pattern", config.integer("_sliding_window_pattern", _PERIOD))
    if not isinstance(types, list) or len(types) != layers:
        raise ModelFileError(f"{config.path} is broken: its layer_types does not name each of {layers} layers.")
    if types != usual or period != _PERIOD or config.flag("use_bidirectional_attention", False):
        raise UnsupportedModelError(f"{config.path} has its windows in other layers than Gemma 3 has.")
    if "attn_logit_softcapping" in config or "final_logit_softcapping" in config:
        raise UnsupportedModelError(f"{config.path} caps its logits, which this version cannot do.")
