"""The qwen2 family (Qwen2, Qwen2.5): llama with biases on queries, keys and values.

    x = embed(token)
    for each layer:
        x += W_o attention(rotary(W_q n + b_q), rotary(W_k n + b_k), W_v n + b_v)   with n = rmsnorm(x)
        x += W_down (silu(W_gate n) * W_up n)                                       with n = rmsnorm(x)
    final = rmsnorm(x)
    logits = W_head final

Source: Yang et al., Qwen2 Technical Report (2024). Rotary pairs are (i, i + head_dim / 2).
"""

from engine.emit.emitter import Emitter
from engine.emit.run_state import Capacity
from engine.families.family import Built
from engine.families.transformer import allocate_state, emit_head, emit_projections, projection_tensors
from engine.families.transformer_config import TransformerConfig
from engine.weights.load import WeightLoader


def build_qwen2(config: TransformerConfig, weights: WeightLoader, capacity: Capacity, tier: int) -> Built:
    """Load the weights and build the program of one forward pass."""
    state = allocate_state(config, capacity)
    emit = Emitter(weights=weights, state=state, capacity=capacity, tier=tier)
    angles = state.hold(config.rope.table(weights, capacity.context_length))
    for layer in range(config.layers):
        _emit_layer(emit, config, f"blk.{layer}", angles)
    emit_head(emit, config, weights)
    embed = weights.embedding("token_embd.weight", config.vocabulary, config.hidden)
    return Built(emit.program.finish(), state, embed)


def _emit_layer(emit: Emitter, config: TransformerConfig, name: str, angles: int) -> None:
    emit.norm(f"{name}.attn_norm.weight", config.epsilon)
    emit_projections(emit, config, name)
    emit.attention(config, angles, biases=projection_tensors(emit.has, config, name, "bias"))
    emit.pack("attended", config.heads * config.head_dim)
    emit.matmul(f"{name}.attn_output.weight", None, config.hidden)
    emit.norm(f"{name}.ffn_norm.weight", config.epsilon)
    emit.feed_forward(f"{name}.ffn_gate.weight", f"{name}.ffn_up.weight", f"{name}.ffn_down.weight", config.ffn)
    emit.end_layer()
