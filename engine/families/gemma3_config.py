"""The shape of a gemma3 model: most of its layers see a window of the last positions, with a rope of their own."""

import dataclasses
import math
from dataclasses import dataclass

from engine.errors import UnsupportedModelError
from engine.families.family import KvLayers
from engine.families.rope import Rope, read_base
from engine.families.transformer_config import TransformerConfig, read_dense_config
from engine.weights.files.metadata import Metadata
from engine.weights.files.weights_file import WeightsFile

_PATTERN = 6  # every sixth layer sees all positions
_LAYERS_OF_27B = 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemma3Config(TransformerConfig):
    """Blueprint of a gemma3 text model."""

    window: int  # positions that a row sees in a sliding layer, its own among them; 0: no layer slides
    slides: tuple[bool, ...]  # of each layer
    sliding_rope: Rope

    @property
    def kv_layers(self) -> tuple[KvLayers, ...]:
        sliding = sum(self.slides)
        counts = ((0, self.layers - sliding), (self.window, sliding))
        return tuple(KvLayers(window, layers, self.kv_heads, self.head_dim) for window, layers in counts if layers)


def read_gemma3_config(file: WeightsFile) -> Gemma3Config:
    """Read and check the `gemma3.*` keys; raises as `read_transformer_config` does."""
    base, metadata = read_dense_config(file), Metadata(file.metadata, file.path)
    shared = {field.name: getattr(base, field.name) for field in dataclasses.fields(base)}
    if base.rope.yarn is not None or base.rope.magnitude != 1:
        raise UnsupportedModelError(f"{file.path} scales its positions by more than a factor, unlike any gemma3.")
    shared["attention_scale"] = base.attention_scale if _says_scale(metadata) else _attention_scale(base)
    shared["rope"] = dataclasses.replace(base.rope, base=_rope_base(metadata, "freq_base", "global.freq_base", None))
    window = metadata.layer_integer("gemma3.attention.sliding_window")
    return Gemma3Config(
        **shared,
        window=window,
        slides=_slides(metadata, base.layers) if window else (False,) * base.layers,
        sliding_rope=Rope(
            base=_rope_base(metadata, "freq_base_swa", "local.freq_base", 10000.0), dimensions=base.rope.dimensions
        ),
    )


def _rope_base(metadata: Metadata, name: str, ollama_name: str, default: float | None) -> float:
    """The base of one kind of layers, under GGUF's name or Ollama's."""
    key = f"gemma3.rope.{name if f'gemma3.rope.{name}' in metadata else ollama_name}"
    return read_base(metadata, key, default)


def _says_scale(metadata: Metadata) -> bool:
    return metadata.number("gemma3.attention.scale", 0.0) != 0


def _attention_scale(config: TransformerConfig) -> float:
    """The scale where the file does not tell it: it follows from the size of a head, but for the largest model."""
    size = config.hidden // config.heads if config.layers == _LAYERS_OF_27B else config.head_dim
    return 1 / math.sqrt(size)


def _slides(metadata: Metadata, layers: int) -> tuple[bool, ...]:
    """Which layers slide: the file may name each, or a pattern of which the last layer of every few does not."""
    key = "gemma3.attention.sliding_window_pattern"
    named = metadata.flags(key, layers)
    if named is not None:
        return named
    pattern = metadata.integer(key, _PATTERN, minimum=1)
    return tuple((layer + 1) % pattern != 0 for layer in range(layers))
