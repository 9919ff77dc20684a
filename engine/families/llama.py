"""The llama family: its tensors and its program, in the order of the formulas.

    x = embed(token)
    for each layer:
        x += W_o attention(rotary(W_q n), rotary(W_k n), W_v n)     with n = rmsnorm(x)
        x += W_down (silu(W_gate n) * W_up n)                       with n = rmsnorm(x)
    final = rmsnorm(x)
    logits = W_head final

Source: Touvron et al., LLaMA (2023); tensor names are GGUF's. Query and key rows in GGUF are permuted so that rotary
pairs are neighbours.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from engine.families.emitter import Emitter
from engine.families.llama_config import LlamaConfig
from engine.families.rotary_angles import rotary_frequencies, rotary_table
from engine.families.run_state import AttentionState, Capacity, FeedForwardState, RunState, StepInputs
from engine.weights.load import WeightLoader
from kernels.activations import Activations, widest_tile
from kernels.program import Program

Embed = Callable[[NDArray[np.int64]], NDArray[np.float32]]


def build_llama(
    config: LlamaConfig, weights: WeightLoader, capacity: Capacity, tier: int
) -> tuple[Program, RunState, Embed]:
    """Load the weights and build the program of one forward pass."""
    state = allocate_state(config, capacity, widest_tile(tier))
    emit = Emitter(weights=weights, state=state, capacity=capacity, tier=tier)
    angles = state.hold(_rotary_table(config, weights, capacity.context_length))
    for layer in range(config.layers):
        _emit_layer(emit, config, f"blk.{layer}", angles)
    tied = not weights.has("output.weight")
    emit.final_norm("output_norm.weight", config.epsilon)
    emit.norm("output_norm.weight", config.epsilon, logits_only=True)
    head = "token_embd.weight" if tied else "output.weight"
    emit.head(head, config.vocabulary)
    embed = weights.embedding("token_embd.weight", config.vocabulary, config.hidden)
    return emit.program.finish(), state, embed


def _emit_layer(emit: Emitter, config: LlamaConfig, name: str, angles: int) -> None:
    heads, kv_heads, dim = config.heads, config.kv_heads, config.head_dim
    emit.norm(f"{name}.attn_norm.weight", config.epsilon)
    emit.matmul(f"{name}.attn_q.weight", "query", heads * dim, barrier=False)
    emit.matmul(f"{name}.attn_k.weight", "key", kv_heads * dim, barrier=False)
    emit.matmul(f"{name}.attn_v.weight", "value", kv_heads * dim)
    emit.attention(heads, kv_heads, dim, config.rope_dimensions, angles)
    emit.pack("attended", heads * dim)
    emit.matmul(f"{name}.attn_output.weight", None, config.hidden)
    emit.norm(f"{name}.ffn_norm.weight", config.epsilon)
    emit.feed_forward(f"{name}.ffn_gate.weight", f"{name}.ffn_up.weight", f"{name}.ffn_down.weight", config.ffn)


def allocate_state(config: LlamaConfig, capacity: Capacity, widest: int) -> RunState:
    """Make the scratch of the family; `widest`: rows of the widest tile."""
    rows, query, kv = capacity.max_rows, config.heads * config.head_dim, config.kv_heads * config.head_dim
    widths = {"query": query, "attended": query, "key": kv, "value": kv, "norm_scratch": config.hidden}
    state = RunState(
        hidden=np.zeros((rows, config.hidden), np.float32),
        final=np.zeros((rows, config.hidden), np.float32),
        logits=np.zeros((capacity.max_logit_rows, -(-config.vocabulary // 16) * 16), np.float32),
        packed=Activations.allocate(max(rows, capacity.max_logit_rows), max(config.hidden, query), widest),
        inputs=StepInputs.allocate(capacity),
        attention=AttentionState.allocate(capacity, config.group, config.kv_heads, config.head_dim),
        feed_forward=FeedForwardState.allocate(capacity, config.ffn, widest),
    )
    for name, width in widths.items():
        state.buffers[name] = np.zeros((max(rows, capacity.threads), width), np.float32)
    return state


def _rotary_table(config: LlamaConfig, weights: WeightLoader, positions: int) -> NDArray[np.float32]:
    """Cosine and sine of each position and pair: float32 [positions, pairs * 2].

    `rope_freqs.weight` (Llama 3.1 and later) holds a divisor for each pair's frequency.
    """
    pairs = config.rope_dimensions // 2
    frequencies = rotary_frequencies(config.rope_base, pairs) / config.rope_factor
    if weights.has("rope_freqs.weight"):
        frequencies = frequencies / weights.vector("rope_freqs.weight", pairs).astype(np.float64)
    return rotary_table(frequencies, positions)
