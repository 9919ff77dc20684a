"""The dense qwen3 family: llama with a norm of each head of queries and keys.

    x = embed(token)
    for each layer:
        x += W_o attention(rotary(headnorm(W_q n)), rotary(headnorm(W_k n)), W_v n)     with n = rmsnorm(x)
        x += W_down (silu(W_gate n) * W_up n)                                           with n = rmsnorm(x)
    final = rmsnorm(x)
    logits = W_head final

Source: Yang et al., Qwen3 Technical Report (2025). Rotary pairs are (i, i + head_dim / 2).
"""

from engine.emit.emitter import Emitter
from engine.emit.run_state import Capacity
from engine.families.family import Built
from engine.families.transformer import allocate_state, emit_head, emit_projections
from engine.families.transformer_config import TransformerConfig
from engine.weights.load import WeightLoader


def build_qwen3(config: TransformerConfig, weights: WeightLoader, capacity: Capacity, tier: int) -> Built:
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
    emit.attention(config, angles, norms=[f"{name}.attn_q_norm.weight", f"{name}.attn_k_norm.weight"])
    emit.pack("attended", config.heads * config.head_dim)
    emit.matmul(f"{name}.attn_output.weight", None, config.hidden)
    emit.norm(f"{name}.ffn_norm.weight", config.epsilon)
    emit.feed_forward(f"{name}.ffn_gate.weight", f"{name}.ffn_up.weight", f"{name}.ffn_down.weight", config.ffn)
    emit.end_layer()
