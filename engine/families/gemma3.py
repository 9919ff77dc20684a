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
"""

import numpy as np
from numpy.typing import NDArray

from engine.emit.emitter import Emitter
from engine.emit.run_state import Capacity
from engine.families.family import Built, Embed
from engine.families.gemma3_config import Gemma3Config
from engine.families.transformer import allocate_state, emit_head, emit_projections
from engine.weights.load import WeightLoader
from kernels.matmul.activation import GELU


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
