"""The family gemma3: the plain transformer of dense.py, most of whose layers see a window of the last positions.

Sliding layers turn by a smaller base, without scaling. Norm weights in GGUF hold the 1 that the formula of gemma adds
to them. The other lines of its formulas are marked [gemma3] in dense.py.

Source: Gemma Team, Gemma 3 Technical Report (2025).
"""

import math
from dataclasses import dataclass, replace

from engine.errors import UnsupportedModelError
from engine.families.checks import SLIDING, architecture_keys
from engine.families.config import TransformerConfig, extended, read_dense_config
from engine.families.dense import Variant, dense_family
from engine.families.emit.attention_state import AttentionShape
from engine.families.rope import Rope, read_base
from engine.weights.files.metadata import Metadata
from engine.weights.files.weights_file import WeightsFile
from kernels.matmul.row_ops import GELU

_PATTERN = 6  # every sixth layer sees all positions
_LAYERS_OF_27B = 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemma3Config(TransformerConfig):
    """Blueprint of a gemma3 text model."""

    window: int  # positions that a row sees in a sliding layer, its own among them; 0: no layer slides
    slides: tuple[bool, ...]  # of each layer
    sliding_rope: Rope

    @property
    def attention(self) -> tuple[AttentionShape, ...]:
        return tuple(self.attention_shape(self.window if slides else 0) for slides in self.slides)

    @property
    def ropes(self) -> tuple[Rope, ...]:
        return tuple(self.sliding_rope if slides else self.rope for slides in self.slides)


def read_gemma3_config(file: WeightsFile) -> Gemma3Config:
    """Read and check the `gemma3.*` keys; raises as `read_transformer_config` does."""
    base, metadata = read_dense_config(file), Metadata(file.metadata, file.path)
    if base.rope.yarn is not None or base.rope.magnitude != 1:
        raise UnsupportedModelError(f"{file.path} scales its positions by more than a factor, unlike any gemma3.")
    window = metadata.layer_integer("gemma3.attention.sliding_window")
    return extended(
        base,
        Gemma3Config,
        attention_scale=base.attention_scale if _says_scale(metadata) else _attention_scale(base),
        rope=replace(base.rope, base=_rope_base(metadata, "freq_base", "global.freq_base", None)),
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
    """The scale of a file that tells none: the size of a head gives the scale, except in the largest model."""
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


GEMMA3 = dense_family(
    Variant(head_norms=True, post_norms=True, activation=GELU, scaled_embedding=True),
    architecture_keys(SLIDING, required=(("rope.freq_base", "rope.global.freq_base"),)),
    read_gemma3_config,
    has_towers=True,
)
