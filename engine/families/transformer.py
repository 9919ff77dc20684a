"""What the builders of transformers share: the scratch of their layers, and the way from the last layer to logits."""

from collections.abc import Callable, Sequence

import numpy as np

from engine.emit.emitter import Emitter
from engine.emit.run_state import AttentionState, Capacity, FeedForwardState, RunState, StepInputs
from engine.families.transformer_config import TransformerConfig
from engine.weights.load import WeightLoader
from kernels.matmul.activations import Activations


def allocate_state(
    config: TransformerConfig, capacity: Capacity, more_buffers: Sequence[tuple[str, int]] = ()
) -> RunState:
    """Make the scratch of attention and dense feed-forward layers; more_buffers: name and width of a family's own."""
    rows, query, kv = capacity.max_rows, config.heads * config.head_dim, config.kv_heads * config.head_dim
    windows = [layers.window for layers in config.kv_layers]
    state = RunState(
        hidden=np.zeros((rows, config.hidden), np.float32),
        final=np.zeros((rows, config.hidden), np.float32),
        logits=np.zeros((capacity.max_logit_rows, -(-config.vocabulary // 16) * 16), np.float32),
        likeliest=np.zeros(capacity.max_logit_rows, np.int64),
        packed=Activations.allocate(max(rows, capacity.max_logit_rows), max(config.hidden, query), capacity.crossover),
        inputs=StepInputs.allocate(capacity),
        attention=AttentionState.allocate(capacity, config.heads, config.kv_heads, config.head_dim, windows),
        feed_forward=FeedForwardState.allocate(capacity, config.ffn) if config.ffn else None,
    )
    widths = {"query": query, "attended": query, "key": kv, "value": kv, "norm_scratch": config.hidden}
    for name, width in {**widths, **dict(more_buffers)}.items():
        state.buffers[name] = np.zeros((max(rows, capacity.threads), width), np.float32)
    return state


def emit_projections(emit: Emitter, config: TransformerConfig, name: str) -> None:
    """W_q n, W_k n and W_v n of the packed input n, for layer `name`."""
    tensors, buffers = projection_tensors(emit.has, config, name, "weight"), ("query", "key", "value")
    if len(tensors) == 1:
        (joined,) = tensors
        emit.matmuls(joined, dict(zip(buffers, _projection_rows(config), strict=True)))
        return
    for buffer, (weight, rows) in zip(buffers, tensors.items(), strict=True):
        emit.matmul(weight, buffer, rows, barrier=buffer == buffers[-1])


def projection_tensors(has: Callable[[str], bool], config: TransformerConfig, name: str, kind: str) -> dict[str, int]:
    """The tensors of queries, keys and values and their rows; `kind`: weight or bias. Some files have all in one."""
    rows, joined = _projection_rows(config), f"{name}.attn_qkv.{kind}"
    if has(joined):
        return {joined: sum(rows)}
    return {f"{name}.attn_{part}.{kind}": count for part, count in zip("qkv", rows, strict=True)}


def _projection_rows(config: TransformerConfig) -> tuple[int, int, int]:
    return (config.heads * config.head_dim, config.kv_heads * config.head_dim, config.kv_heads * config.head_dim)


def emit_head(
    emit: Emitter, config: TransformerConfig, weights: WeightLoader, norm: str = "output_norm.weight"
) -> None:
    """The last norm and the head, which are the embeddings where the file has no matrix for it."""
    emit.final_norm(norm, config.epsilon)
    emit.norm(norm, config.epsilon, logits_only=True)
    emit.head("output.weight" if weights.has("output.weight") else "token_embd.weight", config.vocabulary)
