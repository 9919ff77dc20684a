"""Writes tiny qwen3moe models of random weights as GGUF files."""

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

from tests.tiny.models import Weights, add_hyperparameters, add_metadata, byte_level_tokenizer, write_out


def write_tiny_mixture(
    path: Path,
    *,
    types: str | Mapping[str, str] = "F32",
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 32,
    experts: int = 6,
    active: int = 2,
    width: int = 32,
    vocab: int = 288,
    context: int = 512,
    fused: bool = False,
    silent_router: bool = False,
    metadata: Mapping[str, object] = {},  # it is only read
    seed: int = 0,
) -> Path:
    """Write the model to `path` and return it; equal arguments give equal bytes.

    `types` is as in `write_tiny_llama`; fused: gate and up of each expert are one matrix; silent_router: it
    gives the same logit to all experts; metadata: more of it.
    """
    writer = gguf.GGUFWriter(path, "qwen3moe")
    add_hyperparameters(writer, layers, hidden, heads, kv_heads, head_dim, 2 * hidden, vocab, context)
    writer.add_expert_count(experts)
    writer.add_expert_used_count(active)
    writer.add_expert_feed_forward_length(width)
    add_metadata(writer, {**byte_level_tokenizer(vocab), **metadata})
    weights = Weights(writer, types, seed)
    weights.matrix("token_embd", vocab, hidden)
    weights.matrix("output", vocab, hidden)
    weights.norm("output_norm", hidden)
    for layer in range(layers):
        prefix = f"blk.{layer}."
        _add_attention(weights, prefix, hidden, heads, kv_heads, head_dim)
        weights.norm(prefix + "ffn_norm", hidden)
        if silent_router:
            writer.add_tensor(prefix + "ffn_gate_inp.weight", np.zeros((experts, hidden), np.float32))
        else:
            weights.matrix(prefix + "ffn_gate_inp", experts, hidden)
        if fused:
            weights.experts(prefix + "ffn_gate_up_exps", experts, 2 * width, hidden)
        else:
            weights.experts(prefix + "ffn_gate_exps", experts, width, hidden)
            weights.experts(prefix + "ffn_up_exps", experts, width, hidden)
        weights.experts(prefix + "ffn_down_exps", experts, hidden, width)
    write_out(writer)
    return path


def _add_attention(weights: Weights, prefix: str, hidden: int, heads: int, kv_heads: int, head_dim: int) -> None:
    weights.norm(prefix + "attn_norm", hidden)
    weights.matrix(prefix + "attn_q", heads * head_dim, hidden)
    weights.matrix(prefix + "attn_k", kv_heads * head_dim, hidden)
    weights.matrix(prefix + "attn_v", kv_heads * head_dim, hidden)
    weights.norm(prefix + "attn_q_norm", head_dim)
    weights.norm(prefix + "attn_k_norm", head_dim)
    weights.matrix(prefix + "attn_output", hidden, heads * head_dim)
