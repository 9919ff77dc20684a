"""qwen2: biases on queries, keys and values; nothing changes its order."""

from engine.errors import UnsupportedModelError
from engine.weights.files.metadata import Metadata
from engine.weights.mapping.config import attention_metadata, check_activation, rope_metadata, rope_parameters
from engine.weights.mapping.names import ATTENTION, FEED_FORWARD, Stored, text_tensors, translated
from engine.weights.mapping.recipe import Mapped

_BIASES = {f"self_attn.{letter}_proj.bias": f"attn_{letter}.bias" for letter in "qkv"}


def map_qwen2(config: Metadata, stored: Stored) -> Mapped:
    """Qwen2 and Qwen2.5."""
    check_common(config)
    values = attention_metadata(config) | rope_metadata(config, rope_parameters(config))
    values["feed_forward_length"] = config.integer("intermediate_size", minimum=1)
    return Mapped("qwen2", values, translated(text_tensors(stored), ATTENTION | _BIASES | FEED_FORWARD, config))


def check_common(config: Metadata) -> None:
    """Raise UnsupportedModelError for what no Qwen model that this version runs does."""
    check_activation(config, "silu")
    if config.flag("use_sliding_window", False):
        raise UnsupportedModelError(f"{config.path} uses sliding windows, which this version cannot do for its family.")
