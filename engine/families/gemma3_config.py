"""The shape of a gemma3 model: most of its layers see a window of the last positions, with a rope of their own."""

import dataclasses
import math
from dataclasses import dataclass

from engine.errors import ModelFileError, UnsupportedModelError
from engine.families.family import KvLayers
from engine.families.rope import Rope
from engine.families.transformer_config import TransformerConfig, read_dense_config
from engine.weights.metadata import Metadata
from engine.weights.weights_file import WeightsFile

_PATTERN = 6  # every sixth layer sees all positions
_LAYERS_OF_27B = 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemma3Config(TransformerConfig):
    """Blueprint of a gemma3 text model."""

    window: int  # positions that a row sees in a sliding layer, its own among them
    slides: tuple[bool, ...]  # of each layer
    sliding_rope: Rope

    @property
    def kv_layers(self) -> tuple[KvLayers, ...]:
        sliding = sum(self.slides)
        counts = {0: self.layers - sliding, self.window: sliding}
        return tuple(
            KvLayers(window, layers, self.kv_heads, self.head_dim) for window, layers in counts.items() if layers
        )


def read_gemma3_config(file: WeightsFile) -> Gemma3Config:
    """Read and check the `gemma3.*` keys; raises as `read_transformer_config` does."""
    base, metadata = read_dense_config(file), Metadata(file.metadata, file.path)
    if metadata.number("gemma3.final_logit_softcapping", 0.0) != 0:
        raise UnsupportedModelError(f"{file.path} caps its logits, which gemma3 does not; this version cannot run it.")
    shared = {field.name: getattr(base, field.name) for field in dataclasses.fields(base)}
    sliding_base = metadata.number("gemma3.rope.freq_base_swa", 10000.0)
    if sliding_base <= 0:
        raise ModelFileError(f"{file.path} is broken: the rope base of its sliding layers is {sliding_base}.")
    shared["attention_scale"] = metadata.number("gemma3.attention.scale", _attention_scale(base))
    return Gemma3Config(
        **shared,
        window=metadata.integer("gemma3.attention.sliding_window", minimum=1),
        slides=_slides(metadata, base.layers),
        sliding_rope=Rope(base=sliding_base, dimensions=base.rope.dimensions),
    )


def _attention_scale(config: TransformerConfig) -> float:
    """The scale where the file does not tell it: it follows from the size of a head, but for the largest model."""
    size = config.hidden // config.heads if config.layers == _LAYERS_OF_27B else config.head_dim
    return 1 / math.sqrt(size)


def _slides(metadata: Metadata, layers: int) -> tuple[bool, ...]:
    """Which layers slide: the file may name each, or a pattern of which the last layer of every few does not."""
    key = "gemma3.attention.sliding_window_pattern"
    named = metadata.values.get(key, _PATTERN)
    if isinstance(named, list):
        if len(named) != layers or not all(isinstance(slides, bool) for slides in named):
            raise ModelFileError(f"{metadata.path} is broken: its metadata key {key!r} does not tell of each layer.")
        return tuple(named)
    pattern = metadata.integer(key, _PATTERN, minimum=1)
    return tuple((layer + 1) % pattern != 0 for layer in range(layers))
