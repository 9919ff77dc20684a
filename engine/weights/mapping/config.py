"""Reads a folder's config.json: the spellings of transformers 4 and 5, and what all families say in GGUF's metadata."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import ModelFileError, UnsupportedModelError
from engine.weights.files.gguf_values import MetadataValue
from engine.weights.files.json_file import read_json_object
from engine.weights.files.metadata import MAX_INT32, Metadata
from engine.weights.mapping.recipe import Float32
from kernels.attention.angles import rotary_frequencies

Values = dict[str, MetadataValue]


def read_config(folder: Path) -> Metadata:
    """The configuration of the text model; what is null counts as absent. Raises ModelError."""
    path = folder / "config.json"
    config = _without_nulls(read_json_object(path))
    text = config.pop("text_config", {})
    if not isinstance(text, dict):
        raise ModelFileError(f"{path} is broken: its text_config is no object.")
    config |= _without_nulls(text)
    quantized = config.get("quantization_config", config.get("compression_config"))
    if quantized is not None:
        method = quantized.get("quant_method") if isinstance(quantized, dict) else None
        raise UnsupportedModelError(
            f"{folder} is quantized by {method or 'a method that it does not name'}, which this version cannot read;"
            " use the unquantized folder with --quantize, or a GGUF file."
        )
    return Metadata(config, path)


def attention_metadata(config: Metadata, default_head_dim: int | None = None) -> Values:
    """The keys that every family has, without the architecture's prefix."""
    hidden = config.integer("hidden_size", minimum=1)
    heads = config.integer("num_attention_heads", minimum=1)
    head_dim = config.integer("head_dim", default_head_dim or hidden // heads, minimum=2)
    return {
        "context_length": config.integer("max_position_embeddings", 2048, minimum=1),
        "embedding_length": hidden,
        "block_count": config.integer("num_hidden_layers", minimum=1),
        "attention.head_count": heads,
        "attention.head_count_kv": config.integer("num_key_value_heads", heads, minimum=1),
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": float32(config.number("rms_norm_eps", 1e-6)),
        "vocab_size": config.integer("vocab_size", minimum=1),
    }


def check_activation(config: Metadata, expected: str) -> None:
    """Raise UnsupportedModelError where the feed-forward bends its values by another function."""
    found = config.text("hidden_activation", config.text("hidden_act", expected))
    if found != expected:
        raise UnsupportedModelError(f"{config.path} has the activation {found!r}, where its family has {expected!r}.")


def rope_parameters(config: Metadata, layer_type: str | None = None) -> Metadata:
    """What is said of rotary positions, of one type of layers where they differ: `rope_theta`, `rope_type`, ...

    transformers 5 writes `rope_parameters`, nested by layer type for some families; before, `rope_scaling` held the
    scaling and `rope_theta` stood beside it.
    """
    new = config.values.get("rope_parameters")
    if isinstance(new, dict):
        nested = new.get(layer_type) if layer_type is not None else None
        return _with_own(config, _without_nulls(nested if isinstance(nested, dict) else new))
    old = config.values.get("rope_scaling", {})
    if not isinstance(old, dict):
        raise ModelFileError(f"{config.path} is broken: its rope_scaling is no object.")
    rope = _without_nulls(old)
    if "rope_type" not in rope:
        rope["rope_type"] = rope.get("type", "default")
    return _with_own(config, rope)


def _with_own(config: Metadata, rope: dict[str, Any]) -> Metadata:
    """What is said of rotary positions, with what the configuration itself says of them."""
    own = {key: config.values[key] for key in ("rope_theta", "partial_rotary_factor") if key in config}
    for key, value in own.items():
        if rope.get(key, value) != value:
            raise ModelFileError(f"{config.path} is broken: it says two different things of {key}.")
    return Metadata(own | rope, config.path)


def rope_metadata(
    config: Metadata, rope: Metadata, default_base: float = 10000.0, *, has_divisors: bool = False
) -> Values:
    """The keys `rope.freq_base` and `rope.scaling.*`; of llama3's scaling there is none: see `frequency_divisors`.

    has_divisors: whether the family has a tensor for these. Yarn also says `context_length`, which it stretches.
    """
    values: Values = {"rope.freq_base": float32(rope.number("rope_theta", default_base))}
    match rope.text("rope_type", "default"):
        case "default":
            return values
        case "llama3" if has_divisors:
            return values
        case "linear":
            scaling: Values = {"rope.scaling.type": "linear", "rope.scaling.factor": float32(rope.number("factor"))}
            return values | scaling
        case "yarn":
            return values | _yarn(config, rope)
        case kind:
            raise UnsupportedModelError(
                f"{config.path} scales its positions by {kind!r}; this version knows linear and yarn, and llama3's"
                " scaling for llama models."
            )


def frequency_divisors(rope: Metadata, default_base: float, dimensions: int) -> Float32 | None:
    """What llama3's scaling divides each pair's frequency by: float32 [dimensions / 2]; None for other scalings.

    Waves longer than original / low_freq_factor are stretched by `factor`, those shorter than
    original / high_freq_factor are left alone, and between them the frequency is blended linearly (Llama 3.1).
    """
    if rope.text("rope_type", "default") != "llama3":
        return None
    factor, low, high = (rope.number(key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    original = rope.integer("original_max_position_embeddings", minimum=1)
    if factor < 1 or not 0 < low < high:
        raise ModelFileError(f"{rope.path} is broken: its llama3 rope scaling contradicts itself.")
    turns = original * rotary_frequencies(rope.number("rope_theta", default_base), dimensions // 2) / (2 * np.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)  # of the frequency that is kept
    return (1 / ((1 - share) / factor + share)).astype(np.float32)


def float32(value: float) -> float:
    """As a GGUF file would hold it, so that a folder and the file made of it give the same bits."""
    with np.errstate(over="ignore"):  # what is infinite then is refused where it is read
        return float(np.float32(value))


def _yarn(config: Metadata, rope: Metadata) -> Values:
    if not rope.flag("truncate", True):
        raise UnsupportedModelError(f"{config.path} wants yarn without rounding, which this version cannot do.")
    original = config.integer("max_position_embeddings", 2048, minimum=1)
    factor = rope.number("factor")
    if not 1 <= factor <= MAX_INT32:
        raise ModelFileError(f"{config.path} is broken: its yarn factor is {factor}.")
    first = rope.integer("original_max_position_embeddings", original, minimum=1)
    values: Values = {
        "context_length": max(original, int(first * factor)),
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": float32(factor),
        "rope.scaling.original_context_length": first,
        "rope.scaling.yarn_beta_fast": float32(rope.number("beta_fast", 32.0)),
        "rope.scaling.yarn_beta_slow": float32(rope.number("beta_slow", 1.0)),
    }
    attention = _yarn_attention(rope, factor)
    return values if attention is None else values | {"rope.scaling.attn_factor": float32(attention)}


def _yarn_attention(rope: Metadata, factor: float) -> float | None:
    """GGUF's factor is beside the usual 0.1 ln(factor) + 1, Hugging Face's is in its place; None: the usual one."""
    usual = _magnitude(factor, 1.0)
    if "attention_factor" in rope:
        return rope.number("attention_factor") / usual
    if "mscale" in rope and "mscale_all_dim" in rope:
        over, under = (_magnitude(factor, rope.number(key)) for key in ("mscale", "mscale_all_dim"))
        return over / under / usual
    return None


def _magnitude(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * float(np.log(factor)) + 1.0


def _without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
