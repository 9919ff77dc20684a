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
"""

from dataclasses import dataclass, replace

import numpy as np

from engine.errors import ModelFileError, UnsupportedModelError
from engine.families.checks import BASE, HYBRID, MIXTURE, TURNED, Shapes, architecture_keys
from engine.families.config import TransformerConfig, extended, read_transformer_config
from engine.families.emit.attention import AttentionRows, Rotation, attend
from engine.families.emit.attention_state import AttentionShape
from engine.families.emit.delta import DeltaLayers, DeltaState, delta_kernels
from engine.families.emit.emitter import Emitter, gate_heads, norm, pack, plain_norm
from engine.families.emit.matmul import GatedTensors, feed_forward, matmul
from engine.families.emit.mixture import MixtureLayers, mixture_kernels
from engine.families.emit.run_state import Capacity, RunState
from engine.families.family import Built, Draft, Family
from engine.families.transformer import (
    Names,
    allocate_state,
    attention_shapes,
    emit_head,
    feed_forward_shapes,
    head_norms,
    norm_shapes,
    rotation_of,
    trunk_shapes,
)
from engine.weights.files.metadata import Metadata
from engine.weights.files.weights_file import WeightsFile
from engine.weights.load import WeightLoader
from kernels.attention.rotary import HALVES
from kernels.build.jit import Kernel
from kernels.delta.recurrent import TAPS, DeltaShape

_INTERVAL = 4  # every fourth layer is attention
_GROUPED = "qwen3next"  # the architecture that has V heads by their K head


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen35Config(TransformerConfig):
    """Blueprint of a model of Gated DeltaNet and gated attention; `layers` are those of the trunk."""

    delta: DeltaShape
    recurrent: tuple[bool, ...]  # of each layer: whether it is Gated DeltaNet
    is_tiled: bool  # how V heads share K heads: as LAYER has it
    draft_layers: int  # 1: the file has a block that predicts the token after the next

    @property
    def attention(self) -> tuple[AttentionShape, ...]:
        """Those of the trunk, and the draft's, which shares their block tables."""
        return (self.attention_shape(),) * (self.recurrent.count(False) + self.draft_layers)

    @property
    def state_bytes(self) -> int:
        return self.recurrent.count(True) * self.delta.slot_floats * 4


def read_qwen35_config(file: WeightsFile) -> Qwen35Config:
    """Read and check the keys of the file's architecture; raises as `read_transformer_config` does."""
    base, metadata, name = read_transformer_config(file), Metadata(file.metadata, file.path), file.architecture
    if base.mixture is not None:
        metadata.layer_integer(f"{name}.expert_shared_feed_forward_length", minimum=1)
    blocks, drafts = base.layers, metadata.integer(f"{name}.nextn_predict_layers", 0)
    if drafts > 1:
        raise UnsupportedModelError(f"{file.path} has {drafts} draft layers; this version runs one.")
    if drafts >= blocks:
        raise ModelFileError(f"{file.path} is broken: all of its {blocks} blocks are draft layers.")
    return extended(
        base,
        Qwen35Config,
        layers=blocks - drafts,
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


def _tensors(config: Qwen35Config, names: Names) -> Shapes:
    """All tensors of a model with their shapes; those of qwen3next as `Family.view` shows them."""
    shapes, hidden, query = trunk_shapes(config, names), config.hidden, config.heads * config.head_dim
    for layer, recurrent in enumerate((*config.recurrent, *[False] * config.draft_layers)):
        name = f"blk.{layer}"
        shapes |= norm_shapes(name, hidden, "attn_norm", "post_attention_norm")
        if recurrent:
            shapes |= _delta_shapes(config, name)
        else:
            shapes |= attention_shapes(config, name, ()) | dict.fromkeys(head_norms(name), (config.head_dim,))
            shapes[f"{name}.attn_q.weight"] = (2 * query, hidden)  # queries and their gates
        shapes |= feed_forward_shapes(config, name, names)
    if config.draft_layers:
        name = f"blk.{config.layers}.nextn"
        shapes |= norm_shapes(name, hidden, "enorm", "hnorm", "shared_head_norm")
        shapes[f"{name}.eh_proj.weight"] = (hidden, 2 * hidden)
    return shapes


def _delta_shapes(config: Qwen35Config, name: str) -> Shapes:
    shape, hidden = config.delta, config.hidden
    inner, heads = shape.value_heads * shape.value_dim, shape.value_heads
    return {
        f"{name}.attn_qkv.weight": (shape.channels, hidden),
        f"{name}.attn_gate.weight": (inner, hidden),
        f"{name}.ssm_alpha.weight": (heads, hidden),
        f"{name}.ssm_beta.weight": (heads, hidden),
        f"{name}.ssm_conv1d.weight": (shape.channels, TAPS),
        f"{name}.ssm_a": (heads,),
        f"{name}.ssm_dt.bias": (heads,),
        f"{name}.ssm_norm.weight": (shape.value_dim,),
        f"{name}.ssm_out.weight": (hidden, inner),
    }


def _kernels(config: Qwen35Config, tier: int) -> tuple[Kernel, ...]:
    return (*delta_kernels(config.delta, tier), *(mixture_kernels() if config.mixture else ()))


def _build(config: Qwen35Config, weights: WeightLoader, capacity: Capacity, tier: int) -> Built:
    """Load the weights and build the programs of one forward pass and of the draft."""
    shape = config.delta
    state = allocate_state(config, capacity, widest=max(2 * config.hidden, shape.value_heads * shape.value_dim))
    states = DeltaState.allocate(
        shape, config.recurrent.count(True), capacity.state_slots, capacity.max_rows, capacity.threads
    )
    state.slots = (states,)
    emit = Emitter(weights=weights, state=state, capacity=capacity, tier=tier)
    rows = AttentionRows.allocate(state, config.attention_shape(), gated=True)
    layers = _Layers(config, emit, rows, rotation_of(emit, config.rope, HALVES))
    deltas = DeltaLayers(emit, states)
    for layer, recurrent in enumerate(config.recurrent):
        name = f"blk.{layer}"
        if recurrent:
            packed = norm(emit, emit.stream, f"{name}.attn_norm.weight", config.epsilon)
            deltas.emit(packed, name, config.epsilon, is_tiled=config.is_tiled)
        else:
            layers.emit_attention(name)
        layers.emit_feed_forward(name)
        emit.end_layer()
    deltas.finish()
    emit_head(emit, config)
    embed = weights.embedding("token_embd.weight", config.vocabulary, config.hidden)
    step_bytes = weights.bytes
    draft = _build_draft(layers) if config.draft_layers else None
    return Built(emit.program.finish(), state, embed, draft, step_bytes)


class _Layers:
    """Emits gated attention and feed-forward layers into one program; the rows of attention are shared with others."""

    def __init__(self, config: Qwen35Config, emit: Emitter, rows: AttentionRows, rotation: Rotation) -> None:
        self.config, self.emit, self.rows, self.rotation = config, emit, rows, rotation
        self._mixtures = None if config.mixture is None else MixtureLayers(emit, config.mixture)

    def emit_attention(self, name: str) -> None:
        emit, config, rows = self.emit, self.config, self.rows
        assert rows.gated is not None
        packed = norm(emit, emit.stream, f"{name}.attn_norm.weight", config.epsilon)
        matmul(emit, packed, f"{name}.attn_q.weight", rows.gated, barrier=False)
        matmul(emit, packed, f"{name}.attn_k.weight", rows.key, barrier=False)
        matmul(emit, packed, f"{name}.attn_v.weight", rows.value)
        shape, norms = config.attention_shape(), head_norms(name)
        attended = attend(emit, shape, self.rotation, rows, norms=norms, epsilon=config.epsilon)
        gated = gate_heads(emit, attended, rows.gated, config.head_dim, between=True)
        matmul(emit, gated, f"{name}.attn_output.weight", emit.stream, add=True)

    def emit_feed_forward(self, name: str) -> None:
        emit, config, weight = self.emit, self.config, f"{name}.post_attention_norm.weight"
        if self._mixtures is not None:
            self._mixtures.emit(name, weight, config.epsilon)
            return
        packed = norm(emit, emit.stream, weight, config.epsilon)
        feed_forward(emit, packed, GatedTensors.of(name, config.ffn), emit.stream, add=True)


def _build_draft(trunk: _Layers) -> Draft:
    """Build the draft's program: it has a stream, final states and logits of its own, and shares the rest."""
    config, of_trunk = trunk.config, trunk.emit
    state = _draft_state(of_trunk.state)
    emit = Emitter(weights=of_trunk.weights, state=state, capacity=of_trunk.capacity, tier=of_trunk.tier)
    layers, name = _Layers(config, emit, trunk.rows, trunk.rotation), f"blk.{config.layers}"
    hidden, epsilon = config.hidden, config.epsilon
    tokens, before = state.new_rows("token", hidden), state.new_rows("before", hidden)
    joined = state.new_rows("joined", 2 * hidden)
    left, right = joined.columns(0, hidden), joined.columns(hidden, hidden)
    plain_norm(emit, tokens, f"{name}.nextn.enorm.weight", epsilon, left, barrier=False)
    plain_norm(emit, before, f"{name}.nextn.hnorm.weight", epsilon, right)
    matmul(emit, pack(emit, joined), f"{name}.nextn.eh_proj.weight", emit.stream)
    layers.emit_attention(name)
    layers.emit_feed_forward(name)
    emit_head(emit, config, f"{name}.nextn.shared_head_norm.weight")
    return Draft(emit.program.finish(), state, tokens.array, before.array)


def _draft_state(trunk: RunState) -> RunState:
    return replace(
        trunk,
        hidden=np.zeros_like(trunk.hidden),
        final=np.zeros_like(trunk.final),
        logits=np.zeros_like(trunk.logits),
        likeliest=np.zeros_like(trunk.likeliest),
    )


QWEN35 = Family(
    keys=architecture_keys(HYBRID, harmless=("rope.dimension_sections",), required=(BASE, TURNED)),
    read_config=read_qwen35_config,
    tensors=_tensors,
    build=_build,
    own_kernels=_kernels,
    has_towers=True,
)
QWEN35MOE = replace(
    QWEN35,
    keys=architecture_keys(
        *(HYBRID, MIXTURE),
        # Positions in time, height and width are the same in text; an expert says how wide its layers are.
        harmless=("rope.dimension_sections", "feed_forward_length"),
        required=(BASE, TURNED, ("expert_shared_feed_forward_length",)),
        neutral={"expert_shared_count": (0, 1)},
    ),
)
