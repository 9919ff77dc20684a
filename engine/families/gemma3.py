"""The gemma3 family: its tensors and its program, in the order of the formulas.

    x = embed(token) * sqrt(hidden)
    for each layer:
        x += rmsnorm(W_o attention(rotary(headnorm(W_q n)), rotary(headnorm(W_k n)), W_v n))    with n = rmsnorm(x)
        x += rmsnorm(W_down (gelu(W_gate n) * W_up n))                                          with n = rmsnorm(x)
    final = rmsnorm(x)
    logits = W_head final

Sliding layers see the last positions only, and turn by a smaller base, without scaling. Norm weights in GGUF hold the
1 that the formula of gemma adds to them.

Source: Gemma Team, Gemma 3 Technical Report (2025). Rotary pairs are (i, i + head_dim / 2).

The shape of a gemma3 model: most of its layers see a window of the last positions, with a rope of their own.
"""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.emit.emitter import Emitter
from engine.emit.run_state import Capacity
from engine.errors import UnsupportedModelError
from engine.families.family import Built, Embed, KvLayers
from engine.families.rope import Rope, read_base
from engine.families.transformer import allocate_state, emit_head, emit_projections
from engine.families.transformer_config import TransformerConfig, read_dense_config
from engine.weights.files.metadata import Metadata
from engine.weights.files.weights_file import WeightsFile
from engine.weights.load import WeightLoader
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


def build_gemma3(config: Gemma3Config, weights: WeightLoader, capacity: Capacity, tier: int) -> Built:
    """Load the weights and build the program of one forward pass."""
    state = allocate_state(config, capacity, more_buffers=[("before_norm", config.hidden)])
    emit = Emitter(weights=weights, state=state, capacity=capacity, tier=tier)
    positions = capacity.context_length
    angles = state.hold(config.rope.table(weights, positions))
    sliding_angles = state.hold(config.sliding_rope.table(weights, positions))
    for layer, slides in enumerate(config.slides):
        window = config.window if slides else 0
        _emit_layer(emit, config, f"blk.{layer}", sliding_angles if slides else angles, window)
    emit_head(emit, config, weights)
    return Built(emit.program.finish(), state, _embedding(config, weights))


def _emit_layer(emit: Emitter, config: Gemma3Config, name: str, angles: int, window: int) -> None:
    emit.norm(f"{name}.attn_norm.weight", config.epsilon)
    emit_projections(emit, config, name)
    norms = [f"{name}.attn_q_norm.weight", f"{name}.attn_k_norm.weight"]
    emit.attention(config, angles, window=window, norms=norms)
    emit.pack("attended", config.heads * config.head_dim)
    emit.matmul(f"{name}.attn_output.weight", "before_norm", config.hidden)
    emit.add_norm("before_norm", f"{name}.post_attention_norm.weight", config.epsilon)
    emit.norm(f"{name}.ffn_norm.weight", config.epsilon)
    gate, up, down = (f"{name}.ffn_{part}.weight" for part in ("gate", "up", "down"))
    emit.feed_forward(gate, up, down, config.ffn, activation=GELU, output="before_norm")
    emit.add_norm("before_norm", f"{name}.post_ffw_norm.weight", config.epsilon)
    emit.end_layer()


def _embedding(config: Gemma3Config, weights: WeightLoader) -> Embed:
    look_up = weights.embedding("token_embd.weight", config.vocabulary, config.hidden)
    scale = np.sqrt(np.float32(config.hidden))

    def embed(tokens: list[int], output: NDArray[np.float32]) -> None:
        look_up(tokens, output)
        output *= scale

    return embed
