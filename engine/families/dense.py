"""The families of plain transformers: llama, qwen2 (Qwen2, Qwen2.5), qwen3 and qwen3moe (Qwen3-30B-A3B and its kin).

    x = embed(token)                                                                times sqrt(hidden)  [gemma3]
    for each layer:
        n = rmsnorm(x)
        q, k, v = W_q n + b_q, W_k n + b_k, W_v n + b_v                             biases               [llama, qwen2]
        q, k = headnorm(q), headnorm(k)                                                                  [qwen3, gemma3]
        x += post(W_o attention(rotary(q), rotary(k), v) + b_o)                     post = rmsnorm       [gemma3]
        n = rmsnorm(x)
        x += post(W_down (act(W_gate n + b_gate) * (W_up n + b_up)) + b_down)       act = silu, or gelu  [gemma3]
          or sum over the largest p_e of p_e / (sum of these p) * down_e (silu(gate_e n) * up_e n)       [qwen3moe]
             with p = softmax(W_r n) over all experts
    final = rmsnorm(x)
    logits = W_head final

What a line has for the families in brackets, the others leave out: a `Variant` is the list of what a family has. The
biases of llama are attention_bias and mlp_bias in transformers' configurations; each matrix may have one or not. Rotary
pairs are (i, i + head_dim / 2). Those of llama are neighbours, (2i, 2i + 1): GGUF permutes its query and key rows.

Sources: Touvron et al., LLaMA (2023); Yang et al., Qwen2 Technical Report (2024); Yang et al., Qwen3 Technical Report
(2025). Tensor names are GGUF's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from engine.families.checks import BASE, MIXTURE, Keys, Shapes, architecture_keys
from engine.families.config import Config, TransformerConfig, read_dense_config, read_mixture_config
from engine.families.emit.attention import AttentionRows, Rotation, attend
from engine.families.emit.attention_state import AttentionShape
from engine.families.emit.emitter import Emitter, add_bias, add_norm, norm, pack
from engine.families.emit.matmul import GatedTensors, feed_forward, matmul
from engine.families.emit.mixture import MixtureLayers, mixture_kernels
from engine.families.emit.run_state import Capacity
from engine.families.family import Built, Embed, Family
from engine.families.rope import DIVISORS
from engine.families.transformer import (
    Names,
    allocate_state,
    attention_shapes,
    emit_head,
    feed_forward_shapes,
    head_norms,
    norm_shapes,
    optional,
    project,
    projection_tensors,
    rotation_of,
    trunk_shapes,
)
from engine.weights.files.weights_file import WeightsFile
from engine.weights.load import WeightLoader
from kernels.attention.rotary import HALVES, NEIGHBOURS
from kernels.matmul.row_ops import SILU


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What tells a family of plain transformers from the others."""

    pairing: int = HALVES  # of rotary positions
    biases: Literal["none", "projections", "any"] = "none"  # of q, k and v; or of any matrix of a layer, if it is there
    divisors: bool = False  # a tensor may divide the frequencies of rotary positions
    head_norms: bool = False  # heads of queries and keys are normalized
    post_norms: bool = False  # what attention and feed-forward layers give is normalized
    activation: int = SILU
    scaled_embedding: bool = False  # embeddings are multiplied by sqrt(hidden)


def dense_family(
    variant: Variant, keys: Keys, read_config: Callable[[WeightsFile], Config], *, has_towers: bool = False
) -> Family[Config]:
    """The row of a family in the registry."""
    return Family(
        keys=keys,
        read_config=read_config,
        tensors=partial(_tensors, variant),
        build=partial(_build, variant),
        own_kernels=lambda config, tier: mixture_kernels() if config.mixture else (),
        has_towers=has_towers,
    )


def _tensors(variant: Variant, config: TransformerConfig, names: Names) -> Shapes:
    """All tensors of a model with their shapes, of those names that its file holds."""
    shapes = trunk_shapes(config, names)
    if variant.divisors:
        shapes |= optional(names, {DIVISORS: (config.rope.dimensions // 2,)})
    for layer in range(config.layers):
        name = f"blk.{layer}"
        shapes |= norm_shapes(name, config.hidden, "attn_norm", "ffn_norm")
        shapes |= attention_shapes(config, name, names) | feed_forward_shapes(config, name, names)
        shapes |= _bias_shapes(variant, config, name, names)
        if variant.head_norms:
            shapes |= dict.fromkeys(head_norms(name), (config.head_dim,))
        if variant.post_norms:
            shapes |= norm_shapes(name, config.hidden, "post_attention_norm", "post_ffw_norm")
    return shapes


def _bias_shapes(variant: Variant, config: TransformerConfig, name: str, names: Names) -> Shapes:
    if variant.biases == "none":
        return {}
    projections = projection_tensors(names.__contains__, config, name, "bias")
    shapes: Shapes = {bias: (rows,) for bias, rows in projections.items()}
    if variant.biases == "projections":
        return shapes
    shapes |= {f"{name}.attn_output.bias": (config.hidden,), f"{name}.ffn_down.bias": (config.hidden,)}
    shapes |= {f"{name}.ffn_gate.bias": (config.ffn,), f"{name}.ffn_up.bias": (config.ffn,)}
    return optional(names, shapes)


def _build(variant: Variant, config: TransformerConfig, weights: WeightLoader, capacity: Capacity, tier: int) -> Built:
    """Load the weights and build the program of one forward pass."""
    state = allocate_state(config, capacity)
    emit = Emitter(weights=weights, state=state, capacity=capacity, tier=tier)
    rotations = {rope: rotation_of(emit, rope, variant.pairing) for rope in dict.fromkeys(config.ropes)}
    layers = _Layers(variant, config, emit)
    for layer, (shape, rope) in enumerate(zip(config.attention, config.ropes, strict=True)):
        layers.emit(f"blk.{layer}", shape, rotations[rope])
    emit_head(emit, config)
    embed = weights.embedding("token_embd.weight", config.vocabulary, config.hidden)
    if variant.scaled_embedding:
        embed = _scaled(embed, np.sqrt(np.float32(config.hidden)))
    return Built(emit.program.finish(), state, embed)


class _Layers:
    """Emits the layers of one model, over buffers that all of them share."""

    def __init__(self, variant: Variant, config: TransformerConfig, emit: Emitter) -> None:
        self._variant, self._config, self._emit = variant, config, emit
        self._rows = AttentionRows.allocate(emit.state, config.attention[0])
        self._before_norm = emit.state.new_rows("before_norm", config.hidden) if variant.post_norms else None
        self._mixtures = None if config.mixture is None else MixtureLayers(emit, config.mixture)

    def emit(self, name: str, shape: AttentionShape, rotation: Rotation) -> None:
        self._emit_attention(name, shape, rotation)
        self._emit_feed_forward(name)
        self._emit.end_layer()

    def _emit_attention(self, name: str, shape: AttentionShape, rotation: Rotation) -> None:
        emit, config, variant = self._emit, self._config, self._variant
        packed = norm(emit, emit.stream, f"{name}.attn_norm.weight", config.epsilon)
        project(emit, packed, self._rows, name)
        attended = attend(
            emit,
            shape,
            rotation,
            self._rows,
            biases=projection_tensors(emit.has, config, name, "bias"),
            norms=head_norms(name) if variant.head_norms else (),
            epsilon=config.epsilon,
        )
        output = self._before_norm or emit.stream
        matmul(emit, pack(emit, attended), f"{name}.attn_output.weight", output, add=self._before_norm is None)
        self._finish(f"{name}.attn_output.bias", f"{name}.post_attention_norm.weight")

    def _emit_feed_forward(self, name: str) -> None:
        emit, config = self._emit, self._config
        if self._mixtures is not None:
            self._mixtures.emit(name, f"{name}.ffn_norm.weight", config.epsilon)
            return
        packed = norm(emit, emit.stream, f"{name}.ffn_norm.weight", config.epsilon)
        feed_forward(
            emit,
            packed,
            GatedTensors.of(name, config.ffn),
            self._before_norm or emit.stream,
            activation=self._variant.activation,
            add=self._before_norm is None,
        )
        self._finish(f"{name}.ffn_down.bias", f"{name}.post_ffw_norm.weight")

    def _finish(self, bias: str, post_norm: str) -> None:
        """Add what is not yet in the residual stream: the bias of the last matmul, or the norm of its result."""
        if self._before_norm is None:
            add_bias(self._emit, bias, self._emit.stream)
        else:
            add_norm(self._emit, self._before_norm, post_norm, self._config.epsilon, self._emit.stream)


def _scaled(look_up: Embed, scale: np.float32) -> Embed:
    def embed(tokens: list[int], output: NDArray[np.float32]) -> None:
        look_up(tokens, output)
        output *= scale

    return embed


DENSE = {
    "llama": dense_family(
        Variant(pairing=NEIGHBOURS, biases="any", divisors=True), architecture_keys(), read_dense_config
    ),
    "qwen2": dense_family(
        Variant(biases="projections"),
        # Qwen1.5's own files say use_parallel_residual, which no model does.
        architecture_keys(harmless=("use_parallel_residual",), required=(BASE,)),
        read_dense_config,
    ),
    "qwen3": dense_family(Variant(head_norms=True), architecture_keys(required=(BASE,)), read_dense_config),
    "qwen3moe": dense_family(
        Variant(head_norms=True),
        architecture_keys(MIXTURE, harmless=("feed_forward_length",), required=(BASE,)),
        read_mixture_config,
    ),
}
