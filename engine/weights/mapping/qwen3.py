"""qwen3: norms on the heads of queries and keys; nothing changes its order."""

from engine.weights.files.metadata import Metadata
from engine.weights.mapping.config import attention_metadata, rope_metadata, rope_parameters
from engine.weights.mapping.names import ATTENTION, FEED_FORWARD, HEAD_NORMS, Stored, text_tensors, translated
from engine.weights.mapping.qwen2 import check_common
from engine.weights.mapping.recipe import Mapped

DEFAULT_HEAD_DIM = 128


def map_qwen3(config: Metadata, stored: Stored) -> Mapped:
    """Qwen3, dense."""
    check_common(config)
    values = attention_metadata(config, DEFAULT_HEAD_DIM) | rope_metadata(config, rope_parameters(config))
    values["feed_forward_length"] = config.integer("intermediate_size", minimum=1)
    return Mapped("qwen3", values, translated(text_tensors(stored), ATTENTION | HEAD_NORMS | FEED_FORWARD, config))
