"""Writes tiny models of random weights of the dense families beside llama as GGUF files."""

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

from tests.tiny.models import (
    CHATML,
    Weights,
    add_hyperparameters,
    add_layer,
    add_metadata,
    byte_level_tokenizer,
    write_out,
)

BIASED, HEAD_NORMED, POST_NORMED = ("qwen2",), ("qwen3", "gemma3"), ("gemma3",)


def write_tiny_family(
    path: Path,
    architecture: str,
    *,
    types: str | Mapping[str, str] = "F32",
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int | None = None,
    ffn: int = 96,
    vocab: int = 288,
    context: int = 512,
    window: int = 40,
    pattern: int | None = 2,
    tied: bool = True,
    seed: int = 0,
) -> Path:
    """Write a model of the architecture qwen2, qwen3 or gemma3 to `path` and return it.

    The rest is as `write_tiny_llama` has it. window and pattern are gemma3's: every `pattern`-th layer sees all
    positions, and the others `window` of them.
    """
    head_dim = head_dim or hidden // heads
    writer = gguf.GGUFWriter(path, architecture)
    add_hyperparameters(writer, layers, hidden, heads, kv_heads, head_dim, ffn, vocab, context)
    add_metadata(writer, byte_level_tokenizer(vocab))
    writer.add_chat_template(CHATML)
    if architecture in POST_NORMED:
        writer.add_sliding_window(window)
        if pattern is not None:
            writer.add_uint32(f"{architecture}.attention.sliding_window_pattern", pattern)
    weights = Weights(writer, types, seed)
    weights.matrix("token_embd", vocab, hidden)
    if not tied:
        weights.matrix("output", vocab, hidden)
    weights.norm("output_norm", hidden)
    for layer in range(layers):
        name = f"blk.{layer}."
        add_layer(weights, name, hidden, heads * head_dim, kv_heads * head_dim, ffn)
        if architecture in POST_NORMED:
            weights.norm(name + "post_attention_norm", hidden)
            weights.norm(name + "post_ffw_norm", hidden)
        if architecture in HEAD_NORMED:
            weights.norm(name + "attn_q_norm", head_dim)
            weights.norm(name + "attn_k_norm", head_dim)
        if architecture in BIASED:
            random = np.random.default_rng(seed + layer)
            for part, rows in {"q": heads * head_dim, "k": kv_heads * head_dim, "v": kv_heads * head_dim}.items():
                writer.add_tensor(f"{name}attn_{part}.bias", random.standard_normal(rows, dtype=np.float32))
    write_out(writer)
    return path
