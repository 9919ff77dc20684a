"""The llama family: its tensors and its program, in the order of the formulas.

    x = embed(token)
    for each layer:
        x += W_o attention(rotary(W_q n), rotary(W_k n), W_v n)     with n = rmsnorm(x)
        x += W_down (silu(W_gate n) * W_up n)                       with n = rmsnorm(x)
    final = rmsnorm(x)
    logits = W_head final

Each of the seven matrices of a layer may have a bias (attention_bias and mlp_bias in transformers' configurations).

Source: Touvron et al., LLaMA (2023); tensor names are GGUF's. Query and key rows in GGUF are permuted so that rotary
pairs are neighbours.
"""

from engine.emit.emitter import Emitter
from engine.emit.run_state import Capacity
from engine.families.family import Built
from engine.families.transformer import allocate_state, emit_head, emit_projections, projection_tensors
from engine.families.transformer_config import TransformerConfig
from engine.weights.load import WeightLoader
from kernels.attention.rotary import NEIGHBOURS


def build_llama(config: TransformerConfig, weights: WeightLoader, capacity: Capacity, tier: int) -> Built:
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
    emit.attention(config, angles, pairing=NEIGHBOURS, biases=projection_tensors(emit.has, config, name, "bias"))
    emit.pack("attended", config.heads * config.head_dim)
    emit.matmul(f"{name}.attn_output.weight", None, config.hidden)
    emit.bias(f"{name}.attn_output.bias")
    emit.norm(f"{name}.ffn_norm.weight", config.epsilon)
    emit.feed_forward(f"{name}.ffn_gate.weight", f"{name}.ffn_up.weight", f"{name}.ffn_down.weight", config.ffn)
    emit.bias(f"{name}.ffn_down.bias")
    emit.end_layer()
