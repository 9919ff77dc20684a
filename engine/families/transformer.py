"""The parts that transformers share: their scratch, and the tensors and ops of projections, norms and the head."""

from collections.abc import Callable, Collection

import numpy as np

from engine.families.checks import Shapes
from engine.families.config import TransformerConfig
from engine.families.emit.attention import AttentionRows, Rotation
from engine.families.emit.attention_state import AttentionState
from engine.families.emit.emitter import Emitter, Packed, norm, plain_norm
from engine.families.emit.matmul import head, matmul, split_matmul
from engine.families.emit.mixture import Mixture
from engine.families.emit.run_state import Capacity, FeedForwardState, RunState, StepInputs
from engine.families.rope import Rope
from kernels.matmul.activations import Activations

Names = Collection[str]  # of the tensors that a file has: some may be there or not, or in one with others


def allocate_state(config: TransformerConfig, capacity: Capacity, widest: int = 0) -> RunState:
    """Make the scratch of attention and feed-forward layers; widest: the most columns of a family's own matmuls."""
    rows, logit_rows = capacity.max_rows, capacity.max_logit_rows
    widest = max(config.hidden, config.heads * config.head_dim, widest)
    return RunState(
        hidden=np.zeros((rows, config.hidden), np.float32),
        final=np.zeros((rows, config.hidden), np.float32),
        logits=np.zeros((logit_rows, -(-config.vocabulary // 16) * 16), np.float32),
        likeliest=np.zeros(logit_rows, np.int64),
        norm_scratch=np.zeros((capacity.threads, config.hidden), np.float32),
        packed=Activations.allocate(max(rows, logit_rows), widest, capacity.crossover),
        inputs=StepInputs.allocate(capacity),
        attention=AttentionState.allocate(
            config.attention,
            capacity.n_blocks,
            threads=capacity.threads,
            context_length=capacity.context_length,
            max_rows=rows,
        ),
        feed_forward=FeedForwardState.allocate(capacity, config.ffn) if config.ffn else None,
    )


def rotation_of(emit: Emitter, rope: Rope, pairing: int) -> Rotation:
    """Make the table of a rope's angles."""
    table = rope.table(emit.weights, emit.capacity.context_length)
    return Rotation(emit.state.hold(table), rope.dimensions, pairing)


def project(emit: Emitter, packed: Packed, rows: AttentionRows, name: str) -> None:
    """W_q n, W_k n and W_v n of the packed input n, for layer `name`."""
    targets = (rows.query, rows.key, rows.value)
    joined = f"{name}.attn_qkv.weight"
    if emit.has(joined):
        split_matmul(emit, packed, joined, targets)
        return
    for part, target in zip("qkv", targets, strict=True):
        matmul(emit, packed, f"{name}.attn_{part}.weight", target, barrier=part == "v")


def emit_head(emit: Emitter, config: TransformerConfig, weight: str = "output_norm.weight") -> None:
    """The last norm and the head, which are the embeddings where the file has no matrix for it."""
    final = emit.state.rows_of("final", emit.state.final)
    plain_norm(emit, emit.final_rows, weight, config.epsilon, final, kind="final", barrier=False)
    packed = norm(emit, emit.logit_rows, weight, config.epsilon)
    head(emit, packed, "output.weight" if emit.has("output.weight") else "token_embd.weight", config.vocabulary)


def projection_tensors(has: Callable[[str], bool], config: TransformerConfig, name: str, kind: str) -> dict[str, int]:
    """The tensors of queries, keys and values and their rows; `kind`: weight or bias. Some files have all in one."""
    query, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    joined = f"{name}.attn_qkv.{kind}"
    if has(joined):
        return {joined: query + 2 * kv}
    return {f"{name}.attn_{part}.{kind}": rows for part, rows in zip("qkv", (query, kv, kv), strict=True)}


def head_norms(name: str) -> tuple[str, str]:
    """The tensors with the norms of heads of queries and keys, of layer `name`."""
    return (f"{name}.attn_q_norm.weight", f"{name}.attn_k_norm.weight")


def trunk_shapes(config: TransformerConfig, names: Names) -> Shapes:
    """What belongs to no layer; without a matrix of its own, the head is the embedding."""
    matrix = (config.vocabulary, config.hidden)
    shapes = {"token_embd.weight": matrix, "output_norm.weight": (config.hidden,)}
    return shapes | optional(names, {"output.weight": matrix})


def optional(names: Names, shapes: Shapes) -> Shapes:
    """Those of the tensors that the file has."""
    return {name: shape for name, shape in shapes.items() if name in names}


def norm_shapes(name: str, size: int, *kinds: str) -> Shapes:
    """Vectors of layer `name`."""
    return {f"{name}.{kind}.weight": (size,) for kind in kinds}


def attention_shapes(config: TransformerConfig, name: str, names: Names) -> Shapes:
    """Matrices of the attention of layer `name`."""
    projections = projection_tensors(names.__contains__, config, name, "weight")
    shapes: Shapes = {weight: (rows, config.hidden) for weight, rows in projections.items()}
    return shapes | {f"{name}.attn_output.weight": (config.hidden, config.heads * config.head_dim)}


def feed_forward_shapes(config: TransformerConfig, name: str, names: Names) -> Shapes:
    """Matrices of the dense layer, or of the mixture, of layer `name`."""
    if config.mixture is not None:
        return _mixture_shapes(config.mixture, config.hidden, name, names)
    return _gated_shapes(name, config.ffn, config.hidden)


def _gated_shapes(name: str, width: int, hidden: int, suffix: str = "") -> Shapes:
    return {
        f"{name}.ffn_gate{suffix}.weight": (width, hidden),
        f"{name}.ffn_up{suffix}.weight": (width, hidden),
        f"{name}.ffn_down{suffix}.weight": (hidden, width),
    }


def _mixture_shapes(mixture: Mixture, hidden: int, name: str, names: Names) -> Shapes:
    count, width = mixture.experts, mixture.width
    shapes: Shapes = {
        f"{name}.ffn_gate_inp.weight": (count, hidden),
        f"{name}.ffn_down_exps.weight": (count, hidden, width),
    }
    joined = f"{name}.ffn_gate_up_exps.weight"
    if joined in names:
        shapes[joined] = (count, 2 * width, hidden)
    else:
        shapes |= {f"{name}.ffn_{part}_exps.weight": (count, width, hidden) for part in ("gate", "up")}
    if mixture.shared_width:
        shapes |= _gated_shapes(name, mixture.shared_width, hidden, suffix="_shexp")
        shapes[f"{name}.ffn_gate_inp_shexp.weight"] = (1, hidden)
    return shapes
