"""The families qwen35 and qwen35moe (Qwen3.5, Qwen3.6): Gated DeltaNet, gated attention, dense layers or experts.

    x = embed(token)
    for each layer:
        x += deltanet(n), or in every fourth layer                                           with n = rmsnorm(x)
             W_o (attention(rotary(headnorm(q)), rotary(headnorm(W_k n)), W_v n) * sigmoid(gate))
             where head by head [q | gate] = W_q n
        x += experts(n), or W_down (silu(W_gate n) * W_up n)                                 with n = rmsnorm(x)
    final = rmsnorm(x)
    logits = W_head final

    draft, of the token after the next: h = final of token t, e = embed(token t + 1)
        x = W_eh [rmsnorm(e) | rmsnorm(h)];  one layer of attention as above;  h = rmsnorm(x);  logits = W_head h

Source: the Qwen3.5 models as transformers runs them. Rotary pairs are (i, i + rotary_dim / 2); weights of norms in GGUF
have their 1 already, and V head h of Gated DeltaNet shares K head h % key_heads. qwen3next differs in this alone.

The shape of a qwen35, qwen35moe or qwen3next model, read from metadata and checked before it is built.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.emit.delta_layer import DeltaLayers, delta_kernels
from engine.emit.emitter import Emitter
from engine.emit.mixture_emitter import MixtureEmitter, mixture_kernels
from engine.emit.recurrent_state import RecurrentState
from engine.emit.run_state import Capacity, RunState
from engine.errors import ModelFileError, UnsupportedModelError
from engine.families.family import Built, Draft, KvLayers
from engine.families.mixture import Mixture, read_mixture
from engine.families.transformer import allocate_state, emit_head
from engine.families.transformer_config import TransformerConfig, read_transformer_config
from engine.weights.files.metadata import Metadata
from engine.weights.files.weights_file import WeightsFile
from engine.weights.load import WeightLoader
from kernels.build.jit import Kernel
from kernels.delta.recurrent import TAPS, DeltaShape
from kernels.matmul.activations import Activations

_INTERVAL = 4  # every fourth layer is attention
_GROUPED = "qwen3next"  # the architecture that has V heads by their K head


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen35Config(TransformerConfig):
    """Blueprint of a model of Gated DeltaNet and gated attention; `layers` are those of the trunk."""

    mixture: Mixture | None  # None: feed-forward layers are dense
    delta: DeltaShape
    recurrent: tuple[bool, ...]  # of each layer: whether it is Gated DeltaNet
    is_tiled: bool  # how V heads share K heads: as LAYER has it
    draft_layers: int  # 1: the file has a block that predicts the token after the next

    @property
    def kv_layers(self) -> tuple[KvLayers, ...]:
        """One group: the draft's attention layer shares the tables of the trunk's."""
        return (KvLayers(0, self.recurrent.count(False) + self.draft_layers, self.kv_heads, self.head_dim),)

    @property
    def state_bytes(self) -> int:
        return self.recurrent.count(True) * self.delta.slot_floats * 4


def read_qwen35_config(file: WeightsFile) -> Qwen35Config:
    """Read and check the keys of the file's architecture; raises as `read_transformer_config` does."""
    base, metadata, name = read_transformer_config(file), Metadata(file.metadata, file.path), file.architecture
    shared = {field.name: getattr(base, field.name) for field in dataclasses.fields(base)}
    mixture = read_mixture(metadata, name) if metadata.integer(f"{name}.expert_count", 0) else None
    if mixture is not None:
        shared["ffn"] = metadata.layer_integer(f"{name}.expert_shared_feed_forward_length", minimum=1)
    blocks, drafts = base.layers, metadata.integer(f"{name}.nextn_predict_layers", 0)
    if drafts > 1:
        raise UnsupportedModelError(f"{file.path} has {drafts} draft layers; this version runs one.")
    if drafts >= blocks:
        raise ModelFileError(f"{file.path} is broken: all of its {blocks} blocks are draft layers.")
    shared["layers"] = blocks - drafts
    return Qwen35Config(
        **shared,
        mixture=mixture,
        delta=read_delta_shape(file),
        recurrent=_recurrent(metadata, name, blocks - drafts),
        is_tiled=name != _GROUPED,
        draft_layers=drafts,
    )


def read_delta_shape(file: WeightsFile) -> DeltaShape:
    """Read and check the heads of Gated DeltaNet."""
    metadata, path, name = Metadata(file.metadata, file.path), file.path, file.architecture
    dim = metadata.integer(f"{name}.ssm.state_size", minimum=1)
    inner = metadata.integer(f"{name}.ssm.inner_size", minimum=1)
    shape = DeltaShape(
        key_heads=metadata.integer(f"{name}.ssm.group_count", minimum=1),
        value_heads=metadata.integer(f"{name}.ssm.time_step_rank", minimum=1),
        key_dim=dim,
        value_dim=dim,
    )
    if shape.value_heads % shape.key_heads or inner != shape.value_heads * dim:
        raise ModelFileError(
            f"{path} is broken: its recurrent layers have {shape.value_heads} V heads of {dim} values,"
            f" {shape.key_heads} K heads and {inner} values in all, which contradict each other."
        )
    if dim % 16:
        raise UnsupportedModelError(f"{path} has recurrent heads of {dim} values; this version needs a multiple of 16.")
    taps = metadata.integer(f"{name}.ssm.conv_kernel", minimum=1)
    if taps != TAPS:
        raise UnsupportedModelError(f"{path} has convolutions of {taps} taps; this version runs those of {TAPS}.")
    return shape


def _recurrent(metadata: Metadata, name: str, layers: int) -> tuple[bool, ...]:
    """Which layers are recurrent: the file may name each, or an interval at which the others stand."""
    interval = metadata.integer(f"{name}.full_attention_interval", _INTERVAL, minimum=1)
    recurrent = tuple((layer + 1) % interval != 0 for layer in range(layers))
    named = metadata.flags(f"{name}.attention.recurrent_layers", layers)
    if named is not None and f"{name}.full_attention_interval" in metadata and named != recurrent:
        raise ModelFileError(f"{metadata.path} is broken: it names its recurrent layers twice, and differently.")
    recurrent = named or recurrent
    if all(recurrent) or not any(recurrent):
        raise UnsupportedModelError(
            f"{metadata.path} has layers of one kind only; this version runs {name} models of both kinds."
        )
    return recurrent


def qwen35_kernels(config: Qwen35Config, activations: str, tier: int) -> Sequence[Kernel]:
    """The kernels of this family beyond those of dense layers."""
    mixtures = mixture_kernels(config, activations, tier) if config.mixture else ()
    return (*delta_kernels(config.delta, tier), *mixtures)


def build_qwen35(config: Qwen35Config, weights: WeightLoader, capacity: Capacity, tier: int) -> Built:
    """Load the weights and build the programs of one forward pass and of the draft."""
    state = _allocate(config, capacity)
    emit = _emitter(config, weights, state, capacity, tier)
    deltas = DeltaLayers(emit, weights, state, tier)
    angles = state.hold(config.rope.table(weights, capacity.context_length))
    for layer, recurrent in enumerate(config.recurrent):
        name = f"blk.{layer}"
        emit.norm(f"{name}.attn_norm.weight", config.epsilon)
        if recurrent:
            deltas.emit(name, config.epsilon, is_tiled=config.is_tiled)
        else:
            _emit_attention(emit, config, name, angles)
        _emit_feed_forward(emit, config, name)
        emit.end_layer()
    deltas.finish()
    emit_head(emit, config, weights)
    embed = weights.embedding("token_embd.weight", config.vocabulary, config.hidden)
    step_bytes = weights.bytes
    draft = _build_draft(config, weights, capacity, tier, state, angles) if config.draft_layers else None
    return Built(emit.program.finish(), state, embed, draft, step_bytes)


def _allocate(config: Qwen35Config, capacity: Capacity) -> RunState:
    query, shape = config.heads * config.head_dim, config.delta
    state = allocate_state(config, capacity, [("query_gate", 2 * query)])
    rows = capacity.max_rows
    widest_input = max(2 * config.hidden, query, shape.value_heads * shape.value_dim)
    state.packed = Activations.allocate(max(rows, capacity.max_logit_rows), widest_input, capacity.crossover)
    layers = config.recurrent.count(True)
    state.recurrent = RecurrentState.allocate(shape, layers, capacity.state_slots, rows, capacity.threads)
    return state


def _emitter(config: Qwen35Config, weights: WeightLoader, state: RunState, capacity: Capacity, tier: int) -> Emitter:
    if config.mixture is None:
        return Emitter(weights=weights, state=state, capacity=capacity, tier=tier)
    return MixtureEmitter(config.mixture, weights=weights, state=state, capacity=capacity, tier=tier)


def _emit_attention(emit: Emitter, config: Qwen35Config, name: str, angles: int) -> None:
    heads, kv, dim = config.heads, config.kv_heads * config.head_dim, config.head_dim
    emit.matmul(f"{name}.attn_q.weight", "query_gate", 2 * heads * dim, barrier=False)
    emit.matmul(f"{name}.attn_k.weight", "key", kv, barrier=False)
    emit.matmul(f"{name}.attn_v.weight", "value", kv)
    norms = [f"{name}.attn_q_norm.weight", f"{name}.attn_k_norm.weight"]
    emit.attention(config, angles, norms=norms, gated=True)
    emit.gate_heads("attended", "query_gate", heads, dim, between=True)
    emit.matmul(f"{name}.attn_output.weight", None, config.hidden)


def _emit_feed_forward(emit: Emitter, config: Qwen35Config, name: str) -> None:
    norm = f"{name}.post_attention_norm.weight"
    if isinstance(emit, MixtureEmitter):
        emit.norm(norm, config.epsilon, output="normed")
        emit.experts(name)
    else:
        emit.norm(norm, config.epsilon)
        emit.feed_forward(f"{name}.ffn_gate.weight", f"{name}.ffn_up.weight", f"{name}.ffn_down.weight", config.ffn)


def _build_draft(
    config: Qwen35Config, weights: WeightLoader, capacity: Capacity, tier: int, trunk: RunState, angles: int
) -> Draft:
    """Build the draft's program: it has a stream, final states and logits of its own, and shares the rest."""
    stream = np.zeros_like(trunk.hidden)
    state = replace(
        trunk,
        hidden=stream,
        final=np.zeros_like(trunk.final),
        logits=np.zeros_like(trunk.logits),
        likeliest=np.zeros_like(trunk.likeliest),
        buffers={**trunk.buffers, "stream": stream},
    )
    for buffer, width in (("token", config.hidden), ("before", config.hidden), ("joined", 2 * config.hidden)):
        state.buffers[buffer] = np.zeros((len(stream), width), np.float32)
    emit, name = _emitter(config, weights, state, capacity, tier), f"blk.{config.layers}"
    emit.join_norm("token", f"{name}.nextn.enorm.weight", config.epsilon, "joined", first=0, barrier=False)
    emit.join_norm("before", f"{name}.nextn.hnorm.weight", config.epsilon, "joined", first=config.hidden)
    emit.pack("joined", 2 * config.hidden)
    emit.matmul(f"{name}.nextn.eh_proj.weight", "stream", config.hidden)
    emit.norm(f"{name}.attn_norm.weight", config.epsilon)
    _emit_attention(emit, config, name, angles)
    _emit_feed_forward(emit, config, name)
    emit_head(emit, config, weights, norm=f"{name}.nextn.shared_head_norm.weight")
    return Draft(emit.program.finish(), state)
