"""Writes tiny qwen35 and qwen35moe models of random weights as GGUF files."""

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

from tests.tiny.models import Weights, add_metadata, byte_level_tokenizer, write_out

INTERVAL = 2  # every second layer is attention


def write_tiny_qwen35(
    path: Path,
    *,
    types: str | Mapping[str, str] = "F32",
    layers: int = 4,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 32,
    key_heads: int = 2,
    value_heads: int = 4,
    state: int = 16,
    experts: int = 6,
    active: int = 2,
    width: int = 32,
    draft: bool = True,
    vocab: int = 288,
    context: int = 512,
    metadata: Mapping[str, object] = {},  # it is only read
    seed: int = 0,
) -> Path:
    """Write the model to `path` and return it; equal arguments give equal bytes.

    `types` is as in `write_tiny_llama`; experts=0 writes a dense qwen35; draft: with a block that drafts; metadata:
    replaces keys of the architecture, named without it.
    """
    architecture = "qwen35moe" if experts else "qwen35"
    keys = {
        "block_count": layers + draft,
        "nextn_predict_layers": int(draft),
        "context_length": context,
        "embedding_length": hidden,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "rope.dimension_count": head_dim // 4,
        "full_attention_interval": INTERVAL,
        "ssm.conv_kernel": 4,
        "ssm.state_size": state,
        "ssm.group_count": key_heads,
        "ssm.time_step_rank": value_heads,
        "ssm.inner_size": value_heads * state,
    }
    if experts:
        keys |= {"expert_count": experts, "expert_used_count": active, "expert_feed_forward_length": width}
        keys |= {"expert_shared_feed_forward_length": width}
    else:
        keys["feed_forward_length"] = width
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e4)
    add_metadata(writer, {f"{architecture}.{key}": value for key, value in {**keys, **metadata}.items()})
    add_metadata(writer, byte_level_tokenizer(vocab))
    weights = Weights(writer, types, seed)
    weights.matrix("token_embd", vocab, hidden)
    weights.matrix("output", vocab, hidden)
    weights.norm("output_norm", hidden)
    for layer in range(layers + draft):
        name = f"blk.{layer}."
        weights.norm(name + "attn_norm", hidden)
        if layer < layers and (layer + 1) % INTERVAL:
            _add_delta(writer, weights, name, hidden, key_heads, value_heads, state, seed + layer)
        else:
            _add_attention(weights, name, hidden, heads, kv_heads, head_dim)
        weights.norm(name + "post_attention_norm", hidden)
        if experts:
            _add_experts(weights, name, hidden, experts, width)
        else:
            _add_feed_forward(weights, name, "", hidden, width)
    if draft:
        name = f"blk.{layers}.nextn."
        weights.matrix(name + "eh_proj", hidden, 2 * hidden)
        for norm in ("enorm", "hnorm", "shared_head_norm"):
            weights.norm(name + norm, hidden)
    write_out(writer)
    return path


def _add_delta(
    writer: gguf.GGUFWriter,
    weights: Weights,
    name: str,
    hidden: int,
    key_heads: int,
    value_heads: int,
    state: int,
    seed: int,
) -> None:
    inner, channels = value_heads * state, (2 * key_heads + value_heads) * state
    weights.matrix(name + "attn_qkv", channels, hidden)
    weights.matrix(name + "attn_gate", inner, hidden)
    weights.matrix(name + "ssm_alpha", value_heads, hidden)
    weights.matrix(name + "ssm_beta", value_heads, hidden)
    weights.norm(name + "ssm_norm", state)
    weights.matrix(name + "ssm_out", hidden, inner)
    random = np.random.default_rng(seed)
    writer.add_tensor(name + "ssm_a", -random.uniform(0.05, 1, value_heads).astype(np.float32))
    writer.add_tensor(name + "ssm_dt.bias", random.standard_normal(value_heads, np.float32) - 1)
    writer.add_tensor(name + "ssm_conv1d.weight", random.standard_normal((channels, 4), np.float32) * np.float32(0.5))


def _add_attention(weights: Weights, name: str, hidden: int, heads: int, kv_heads: int, head_dim: int) -> None:
    weights.matrix(name + "attn_q", 2 * heads * head_dim, hidden)
    weights.matrix(name + "attn_k", kv_heads * head_dim, hidden)
    weights.matrix(name + "attn_v", kv_heads * head_dim, hidden)
    weights.norm(name + "attn_q_norm", head_dim)
    weights.norm(name + "attn_k_norm", head_dim)
    weights.matrix(name + "attn_output", hidden, heads * head_dim)


def _add_experts(weights: Weights, name: str, hidden: int, experts: int, width: int) -> None:
    weights.matrix(name + "ffn_gate_inp", experts, hidden)
    weights.experts(name + "ffn_gate_exps", experts, width, hidden)
    weights.experts(name + "ffn_up_exps", experts, width, hidden)
    weights.experts(name + "ffn_down_exps", experts, hidden, width)
    weights.norm(name + "ffn_gate_inp_shexp", hidden)
    _add_feed_forward(weights, name, "_shexp", hidden, width)


def _add_feed_forward(weights: Weights, name: str, suffix: str, hidden: int, width: int) -> None:
    weights.matrix(f"{name}ffn_gate{suffix}", width, hidden)
    weights.matrix(f"{name}ffn_up{suffix}", width, hidden)
    weights.matrix(f"{name}ffn_down{suffix}", hidden, width)
