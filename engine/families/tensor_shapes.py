"""The tensors of each family under GGUF's names, with their shapes: a file must hold these, and no others.

Shapes follow from the configuration, which comes from metadata. So the two are compared here, by the header alone,
before anything is allocated by either.
"""

import re
from collections.abc import Collection, Mapping

from engine.errors import UnsupportedModelError
from engine.families.mixture import Mixture
from engine.families.qwen3moe import Qwen3MoeConfig
from engine.families.qwen35 import Qwen35Config
from engine.families.rope import DIVISORS
from engine.families.transformer import projection_tensors
from engine.families.transformer_config import TransformerConfig
from engine.weights.files.weights_file import WeightsFile, checked_tensor
from kernels.delta.recurrent import TAPS

Shapes = dict[str, tuple[int, ...]]
Names = Collection[str]  # of the tensors that a file has: some may be there or not, or in one with others

# Tensors that change no answer: a table of frequencies, which follow from the metadata, and what a draft head may have
# of its own, where ours takes the trunk's.
HARMLESS_TENSORS = re.compile(
    r"blk\.\d+\.(attn_rot_embd(\.inv_freq|\.weight)?|nextn\.(embed_tokens|shared_head_head)\.weight)"
)
# Towers of other senses, which Ollama's files hold beside the text model.
TOWERS = re.compile(r"(v|a|mm)\..+")
WITH_TOWERS = frozenset(("gemma3", "qwen35", "qwen35moe"))


def check_tensors(file: WeightsFile, shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Raise ModelFileError for a tensor that is missing or misshapen, UnsupportedModelError for one that is not used.

    To leave a tensor out would silently give another model. Returns a line for what a text model leaves out.
    """
    for name, shape in shapes.items():
        checked_tensor(file, name, shape)
    towers = [name for name in file.tensors if TOWERS.fullmatch(name) and file.architecture in WITH_TOWERS]
    for name in file.tensors.keys() - shapes.keys() - set(towers):
        if not HARMLESS_TENSORS.fullmatch(name):
            raise UnsupportedModelError(
                f"{file.path_of(name)} has the tensor {name}, which this version cannot compute for the architecture"
                f" {file.architecture!r}; use another file of the model, or a program that can."
            )
    senses = f"Its {len(towers)} tensors of other senses than text, as {towers[0]}, are left out." if towers else None
    return [] if senses is None else [senses]


def llama_shapes(config: TransformerConfig, names: Names) -> Shapes:
    shapes = _trunk(config, names) | _optional(names, {DIVISORS: (config.rope.dimensions // 2,)})
    for layer in range(config.layers):
        name = f"blk.{layer}."
        shapes |= _norms(name, config.hidden, "attn_norm", "ffn_norm")
        shapes |= _attention(config, name, names) | _dense(config, name)
        biases = {f"{name}attn_output.bias": config.hidden, f"{name}ffn_down.bias": config.hidden}
        biases |= {f"{name}ffn_{part}.bias": config.ffn for part in ("gate", "up")}
        biases |= projection_tensors(names.__contains__, config, f"blk.{layer}", "bias")
        shapes |= _optional(names, {bias: (size,) for bias, size in biases.items()})
    return shapes


def qwen2_shapes(config: TransformerConfig, names: Names) -> Shapes:
    shapes = _trunk(config, names)
    for layer in range(config.layers):
        name = f"blk.{layer}."
        shapes |= _norms(name, config.hidden, "attn_norm", "ffn_norm")
        shapes |= _attention(config, name, names) | _dense(config, name)
        biases = projection_tensors(names.__contains__, config, f"blk.{layer}", "bias")
        shapes |= {bias: (size,) for bias, size in biases.items()}
    return shapes


def qwen3_shapes(config: TransformerConfig, names: Names) -> Shapes:
    shapes = _trunk(config, names)
    for layer in range(config.layers):
        name = f"blk.{layer}."
        shapes |= _norms(name, config.hidden, "attn_norm", "ffn_norm") | _head_norms(config, name)
        shapes |= _attention(config, name, names) | _dense(config, name)
    return shapes


def gemma3_shapes(config: TransformerConfig, names: Names) -> Shapes:
    shapes = qwen3_shapes(config, names)
    for layer in range(config.layers):
        shapes |= _norms(f"blk.{layer}.", config.hidden, "post_attention_norm", "post_ffw_norm")
    return shapes


def qwen3moe_shapes(config: Qwen3MoeConfig, names: Names) -> Shapes:
    shapes = _trunk(config, names)
    for layer in range(config.layers):
        name = f"blk.{layer}."
        shapes |= _norms(name, config.hidden, "attn_norm", "ffn_norm") | _head_norms(config, name)
        shapes |= _attention(config, name, names) | _mixture(config.mixture, config.hidden, name, names)
    return shapes


def qwen35_shapes(config: Qwen35Config, names: Names) -> Shapes:
    """Of qwen35, qwen35moe, and qwen3next as `Family.view` shows it."""
    shapes, hidden, query = _trunk(config, names), config.hidden, config.heads * config.head_dim
    for layer, recurrent in enumerate((*config.recurrent, *[False] * config.draft_layers)):
        name = f"blk.{layer}."
        shapes |= _norms(name, hidden, "attn_norm", "post_attention_norm")
        if recurrent:
            shapes |= _delta(config, name)
        else:
            shapes |= _attention(config, name, ()) | _head_norms(config, name)
            shapes[f"{name}attn_q.weight"] = (2 * query, hidden)  # queries and their gates
        mixture = config.mixture
        shapes |= _dense(config, name) if mixture is None else _mixture(mixture, hidden, name, names)
    if config.draft_layers:
        name = f"blk.{config.layers}.nextn."
        shapes |= _norms(name, hidden, "enorm", "hnorm", "shared_head_norm")
        shapes[f"{name}eh_proj.weight"] = (hidden, 2 * hidden)
    return shapes


def _trunk(config: TransformerConfig, names: Names) -> Shapes:
    """What belongs to no layer; without a matrix of its own, the head is the embedding."""
    matrix = (config.vocabulary, config.hidden)
    shapes = {"token_embd.weight": matrix, "output_norm.weight": (config.hidden,)}
    return shapes | _optional(names, {"output.weight": matrix})


def _optional(names: Names, shapes: Shapes) -> Shapes:
    return {name: shape for name, shape in shapes.items() if name in names}


def _norms(name: str, size: int, *kinds: str) -> Shapes:
    return {f"{name}{kind}.weight": (size,) for kind in kinds}


def _head_norms(config: TransformerConfig, name: str) -> Shapes:
    return _norms(name, config.head_dim, "attn_q_norm", "attn_k_norm")


def _attention(config: TransformerConfig, name: str, names: Names) -> Shapes:
    projections = projection_tensors(names.__contains__, config, name.removesuffix("."), "weight")
    shapes: Shapes = {weight: (rows, config.hidden) for weight, rows in projections.items()}
    return shapes | {f"{name}attn_output.weight": (config.hidden, config.heads * config.head_dim)}


def _dense(config: TransformerConfig, name: str, width: int = 0, suffix: str = "") -> Shapes:
    width = width or config.ffn
    wide, narrow = (width, config.hidden), (config.hidden, width)
    return {
        f"{name}ffn_gate{suffix}.weight": wide,
        f"{name}ffn_up{suffix}.weight": wide,
        f"{name}ffn_down{suffix}.weight": narrow,
    }


def _mixture(mixture: Mixture, hidden: int, name: str, names: Names) -> Shapes:
    count, width = mixture.experts, mixture.width
    shapes: Shapes = {
        f"{name}ffn_gate_inp.weight": (count, hidden),
        f"{name}ffn_down_exps.weight": (count, hidden, width),
    }
    joined = f"{name}ffn_gate_up_exps.weight"
    if joined in names:
        shapes[joined] = (count, 2 * width, hidden)
    else:
        shapes |= {f"{name}ffn_{part}_exps.weight": (count, width, hidden) for part in ("gate", "up")}
    if mixture.shared_width:
        wide, narrow = (mixture.shared_width, hidden), (hidden, mixture.shared_width)
        shapes |= {f"{name}ffn_gate_shexp.weight": wide, f"{name}ffn_up_shexp.weight": wide}
        shapes |= {f"{name}ffn_down_shexp.weight": narrow, f"{name}ffn_gate_inp_shexp.weight": (1, hidden)}
    return shapes


def _delta(config: Qwen35Config, name: str) -> Shapes:
    shape, hidden = config.delta, config.hidden
    inner, heads = shape.value_heads * shape.value_dim, shape.value_heads
    return {
        f"{name}attn_qkv.weight": (shape.channels, hidden),
        f"{name}attn_gate.weight": (inner, hidden),
        f"{name}ssm_alpha.weight": (heads, hidden),
        f"{name}ssm_beta.weight": (heads, hidden),
        f"{name}ssm_conv1d.weight": (shape.channels, TAPS),
        f"{name}ssm_a": (heads,),
        f"{name}ssm_dt.bias": (heads,),
        f"{name}ssm_norm.weight": (shape.value_dim,),
        f"{name}ssm_out.weight": (hidden, inner),
    }
