"""Checks a file by its header alone: every key of its architecture, and every tensor, must be one that is understood.

A key is used, without effect, or a reason to refuse the file. The lists are complete for the keys of the GGUF
specification; a key that is on none of them is told to the operator. Shapes of tensors follow from the configuration,
which comes from metadata; so the two are compared before anything is allocated by either.

Source of the keys: the GGUF specification of ggml, the `gguf` package, and the files that llama.cpp and Ollama write.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from engine.errors import ModelFileError, UnsupportedModelError
from engine.weights.files.weights_file import WeightsFile, checked_tensor

Shapes = dict[str, tuple[int, ...]]  # of tensors, by their names
Neutral = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The keys of one architecture, without its prefix."""

    used: frozenset[str]
    harmless: frozenset[str]  # they change no bit of any logits
    refused: Neutral  # these keys change the mathematics, except with these values; true and false count as 1 and 0
    required: tuple[tuple[str, ...], ...] = ()  # one of each group has to be there: no default fits all


_COMMON = frozenset(
    (
        *("context_length", "embedding_length", "block_count", "feed_forward_length", "vocab_size", "pooling_type"),
        *("attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length"),
        *("attention.layer_norm_rms_epsilon", "attention.scale"),
        *("rope.freq_base", "rope.dimension_count", "rope.scale_linear", "rope.scaling.type", "rope.scaling.factor"),
        *("rope.scaling.original_context_length", "rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"),
        *("rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "rope.scaling.yarn_ext_factor"),
        "rope.scaling.yarn_log_multiplier",
    )
)
SLIDING = frozenset(
    (
        *("attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa"),
        *("rope.global.freq_base", "rope.local.freq_base"),  # Ollama's names
    )
)
MIXTURE = frozenset(
    (
        *("expert_count", "expert_used_count", "expert_feed_forward_length", "expert_shared_feed_forward_length"),
        *("expert_weights_norm", "expert_weights_scale"),
    )
)
HYBRID = frozenset(
    (
        *("full_attention_interval", "attention.recurrent_layers", "nextn_predict_layers", "ssm.conv_kernel"),
        *("ssm.state_size", "ssm.group_count", "ssm.time_step_rank", "ssm.inner_size"),
    )
)
# How a file came to be; the epsilon of another kind of norm.
_HARMLESS = frozenset(
    ("tensor_data_layout", "rope.scaling.finetuned", "attention.layer_norm_epsilon", "attention.group_norm_epsilon")
)
# Of what a text model has no use for: its towers of other senses, whose tensors are left out too.
HARMLESS_PREFIXES = ("vision.", "audio.", "mm.", "mm_")

_NEVER: tuple[float, ...] = ()
_REFUSED: Neutral = {
    "attention.causal": (1,),
    **dict.fromkeys(
        (
            *("attention.sliding_window", "attention.sliding_window_pattern", "attention.clamp_kqv"),
            *("attention.max_alibi_bias", "attention.temperature_scale", "attention.temperature_length"),
            *("attention.shared_kv_layers", "attention.q_lora_rank", "attention.kv_lora_rank"),
            *("attention.key_length_mla", "attention.value_length_mla", "attention.group_norm_groups"),
            *("attn_logit_softcapping", "final_logit_softcapping", "router_logit_softcapping"),
            *("expert_count", "expert_used_count", "expert_feed_forward_length", "expert_shared_feed_forward_length"),
            *("expert_weights_norm", "expert_shared_count", "expert_chunk_feed_forward_length", "experts_per_group"),
            *("leading_dense_block_count", "moe_latent_size", "swiglu_clamp_exp", "swiglu_clamp_shexp"),
            *("nextn_predict_layers", "full_attention_interval", "rope.scaling.alpha", "rescale_every_n_layers"),
            *("use_parallel_residual", "swin_norm", "n_deepstack_layers", "embedding_length_per_layer_input"),
            *("activation_sparsity_scale", "token_shift_count", "ssm.dt_b_c_rms"),
        ),
        (0,),
    ),
    **dict.fromkeys(
        (
            *("logit_scale", "residual_scale", "embedding_scale", "attention.output_scale", "expert_weights_scale"),
            *("expert_group_count", "expert_group_used_count", "expert_group_scale", "expert_gating_func"),
            *("moe_every_n_layers", "interleave_moe_layer_step", "rope.freq_scale"),
        ),
        (0, 1),  # none, or one; of gating functions: not said, or the softmax
    ),
    **dict.fromkeys(
        (
            *("attention.key_length_swa", "attention.value_length_swa", "attention.recurrent_layers"),
            *("attention.relative_buckets_count", "attention.decay_lora_rank", "attention.gate_lora_rank"),
            *("attention.iclr_lora_rank", "attention.value_residual_mix_lora_rank"),
            *("rope.freq_base_swa", "rope.dimension_count_swa", "rope.dimension_sections"),
            *("altup.active_idx", "altup.num_inputs", "classifier.output_labels", "embedding_length_out"),
            *("decoder_block_count", "decoder_start_token_id", "features_length", "shortconv.l_cache"),
            *("convnext.block_count", "convnext.embedding_length", "posnet.block_count", "posnet.embedding_length"),
            *("kda.head_dim", "wkv.head_size", "time_decay_extra_dim", "time_mix_extra_dim"),
            *("ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank", "ssm.inner_size"),
            *("dense_2_feat_in", "dense_2_feat_out", "dense_3_feat_in", "dense_3_feat_out"),
        ),
        _NEVER,
    ),
}


def architecture_keys(
    *used: Collection[str],
    harmless: Collection[str] = (),
    required: Iterable[tuple[str, ...]] = (),
    neutral: Neutral = MappingProxyType({}),
) -> Keys:
    """The keys of one architecture: the common ones and those that the family uses beside them.

    required: groups of keys of which one has to be there; neutral: more values that change nothing, by key.
    """
    taken = _COMMON.union(*used)
    refused = {key: values for key, values in {**_REFUSED, **neutral}.items() if key not in taken}
    return Keys(
        used=taken.difference(harmless),
        harmless=_HARMLESS.union(harmless),
        refused={key: values for key, values in refused.items() if key not in harmless},
        required=tuple(required),
    )


# Keys that have to be there.
BASE = ("rope.freq_base",)  # the makers of all but llama's first models write it
TURNED = ("rope.dimension_count",)


def check_keys(file: WeightsFile, keys: Keys) -> list[str]:
    """Refuse a file that asks for other mathematics; return a line for each key that this version does not know.

    Raises ModelFileError for a key that is missing, UnsupportedModelError for a value that is not served.
    """
    name = file.architecture
    for group in keys.required:
        if not any(f"{name}.{key}" in file.metadata for key in group):
            raise ModelFileError(
                f"{file.path} has no metadata key '{name}.{group[0]}', which this kind of model needs."
            )
    unknown = []
    for full, value in file.metadata.items():
        key = full.removeprefix(f"{name}.")
        if key == full or key in keys.used | keys.harmless or key.startswith(HARMLESS_PREFIXES):
            continue
        if key not in keys.refused:
            unknown.append(f"The key {full} = {_shown(value)} is not known to this version, and changes nothing here.")
        elif not _is_neutral(value, keys.refused[key]):
            raise UnsupportedModelError(
                f"{file.path} says {full} = {_shown(value)}, which this version cannot compute for the architecture"
                f" {name!r}; use another file of the model, or a program that can."
            )
    return unknown


def _is_neutral(value: object, neutral: tuple[float, ...]) -> bool:
    """Whether a number, or each number of an array, is one of those that change nothing."""
    if not isinstance(value, bool | int | float | np.ndarray):
        return False
    return bool(neutral) and bool(np.isin(np.asarray(value, np.float64), neutral).all())


def _shown(value: object) -> str:
    text = repr(value.tolist() if isinstance(value, np.ndarray) else value)
    return text if len(text) <= 60 else f"{text[:60]}..."


# Tensors that change no answer: a table of frequencies, which follow from the metadata, and what a draft head may have
# of its own, where ours takes the trunk's.
HARMLESS_TENSORS = re.compile(
    r"blk\.\d+\.(attn_rot_embd(\.inv_freq|\.weight)?|nextn\.(embed_tokens|shared_head_head)\.weight)"
)
# Towers of other senses, which Ollama's files hold beside the text model.
TOWERS = re.compile(r"(v|a|mm)\..+")


def check_tensors(file: WeightsFile, shapes: Mapping[str, tuple[int, ...]], *, has_towers: bool) -> list[str]:
    """Raise ModelFileError for a tensor that is missing or misshapen, UnsupportedModelError for one that is not used.

    To leave a tensor out would silently give another model. Returns a line for what a text model leaves out.
    """
    for name, shape in shapes.items():
        checked_tensor(file, name, shape)
    towers = [name for name in file.tensors if has_towers and TOWERS.fullmatch(name)]
    for name in file.tensors.keys() - shapes.keys() - set(towers):
        if not HARMLESS_TENSORS.fullmatch(name):
            raise UnsupportedModelError(
                f"{file.path_of(name)} has the tensor {name}, which this version cannot compute for the architecture"
                f" {file.architecture!r}; use another file of the model, or a program that can."
            )
    return [f"Its {len(towers)} tensors of other senses than text, as {towers[0]}, are left out."] if towers else []
