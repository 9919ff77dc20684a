"""The qwen3moe family (Qwen3-30B-A3B and its kin): qwen3 with a mixture of experts for the feed-forward layer.

    x = embed(token)
    for each layer:
        x += W_o attention(rotary(headnorm(W_q n)), rotary(headnorm(W_k n)), W_v n)     with n = rmsnorm(x)
        p = softmax(W_r n) over all experts                                             with n = rmsnorm(x)
        x += sum over the largest p_e of p_e / (sum of these p) * down_e (silu(gate_e n) * up_e n)
    final = rmsnorm(x)
    logits = W_head final

Source: Yang et al., Qwen3 Technical Report (2025). Rotary pairs are (i, i + head_dim / 2).
"""

from dataclasses import dataclass, fields

from engine.emit.mixture_emitter import MixtureEmitter
from engine.emit.run_state import Capacity
from engine.families.family import Built
from engine.families.mixture import Mixture, read_mixture
from engine.families.transformer import allocate_state, emit_head, emit_projections
from engine.families.transformer_config import TransformerConfig, read_transformer_config
from engine.weights.files.metadata import Metadata
from engine.weights.files.weights_file import WeightsFile
from engine.weights.load import WeightLoader


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3MoeConfig(TransformerConfig):
    """Blueprint of a qwen3moe model."""

    mixture: Mixture


def read_qwen3moe_config(file: WeightsFile) -> Qwen3MoeConfig:
    """Read and check the `qwen3moe.*` keys; raises as `read_transformer_config` does."""
    base, mixture = read_transformer_config(file), read_mixture(Metadata(file.metadata, file.path), file.architecture)
    shared = {field.name: getattr(base, field.name) for field in fields(base)}
    return Qwen3MoeConfig(**shared | {"ffn": mixture.shared_width}, mixture=mixture)


def build_qwen3moe(config: Qwen3MoeConfig, weights: WeightLoader, capacity: Capacity, tier: int) -> Built:
    """Load the weights and build the program of one forward pass."""
    state = allocate_state(config, capacity)
    emit = MixtureEmitter(config.mixture, weights=weights, state=state, capacity=capacity, tier=tier)
    angles = state.hold(config.rope.table(weights, capacity.context_length))
    for layer in range(config.layers):
        _emit_layer(emit, config, f"blk.{layer}", angles)
    emit_head(emit, config, weights)
    embed = weights.embedding("token_embd.weight", config.vocabulary, config.hidden)
    return Built(emit.program.finish(), state, embed)


def _emit_layer(emit: MixtureEmitter, config: Qwen3MoeConfig, name: str, angles: int) -> None:
    emit.norm(f"{name}.attn_norm.weight", config.epsilon)
    emit_projections(emit, config, name)
    emit.attention(config, angles, norms=[f"{name}.attn_q_norm.weight", f"{name}.attn_k_norm.weight"])
    emit.pack("attended", config.heads * config.head_dim)
    emit.matmul(f"{name}.attn_output.weight", None, config.hidden)
    emit.norm(f"{name}.ffn_norm.weight", config.epsilon, output="normed")
    emit.experts(name)
    emit.end_layer()
