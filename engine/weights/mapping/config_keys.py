"""What each key of a folder's config.json means here: used, without effect, or a reason to refuse the folder.

A key that is on none of these lists goes into the metadata, so that the operator hears of it. Keys of which no family
here knows anything stand under `harmless` only if they tell of training, of saving, or of how tokens are chosen.
"""

import json
from collections.abc import Mapping

from engine.errors import UnsupportedModelError
from engine.weights.files.metadata import Metadata

PREFIX = "huggingface."  # of keys that are not known, in the metadata of the architecture

_USED = frozenset(
    (
        *("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"),
        *("intermediate_size", "max_position_embeddings", "rms_norm_eps", "vocab_size", "tie_word_embeddings"),
        *("hidden_act", "hidden_activation", "rope_theta", "rope_scaling", "rope_parameters"),
        *("quantization_config", "compression_config"),
    )
)
_EXPERTS = frozenset(
    (
        *("num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob"),
        *("decoder_sparse_step", "mlp_only_layers"),
    )
)
_HYBRID = frozenset(
    (
        *("partial_rotary_factor", "full_attention_interval", "layer_types", "linear_conv_kernel_dim"),
        *("linear_key_head_dim", "linear_value_head_dim", "linear_num_key_heads", "linear_num_value_heads"),
    )
)
_OWN: Mapping[str, frozenset[str]] = {
    "llama": frozenset(("partial_rotary_factor",)),
    "qwen2": frozenset(("use_sliding_window",)),
    "qwen3": frozenset(("use_sliding_window",)),
    "qwen3moe": _EXPERTS | {"use_sliding_window"},
    "qwen35": _HYBRID | {"use_sliding_window"},
    "qwen35moe": _HYBRID | _EXPERTS | {"shared_expert_intermediate_size", "use_sliding_window"},
    "qwen3next": _HYBRID | _EXPERTS | {"shared_expert_intermediate_size", "use_sliding_window"},
    "gemma3": frozenset(
        (
            *("sliding_window", "sliding_window_pattern", "_sliding_window_pattern", "layer_types"),
            *("rope_local_base_freq", "query_pre_attn_scalar", "use_bidirectional_attention"),
            *("attn_logit_softcapping", "final_logit_softcapping"),
        )
    ),
}
HARMLESS = frozenset(
    (
        # Whether there are biases is told by the tensors; how wide a window would be, only if one is used.
        *("attention_bias", "mlp_bias", "max_window_layers"),
        # Of saving and of programs.
        *("architectures", "torch_dtype", "dtype", "transformers_version", "_name_or_path", "use_cache", "auto_map"),
        *("attn_implementation", "_attn_implementation", "_attn_implementation_autoset", "unsloth_version"),
        *("unsloth_fixed", "use_flash_attn", "return_dict", "output_attentions", "output_hidden_states", "torchscript"),
        *("id2label", "label2id", "problem_type", "task_specific_params", "finetuning_task", "tokenizer_class"),
        *("mamba_ssm_dtype", "use_bfloat16", "name_or_path", "prefix", "pruned_heads", "num_labels"),
        # Of training.
        *("initializer_range", "attention_dropout", "hidden_dropout", "pretraining_tp", "gradient_checkpointing"),
        *("output_router_logits", "router_aux_loss_coef", "router_jitter_noise", "embd_pdrop", "resid_pdrop"),
        # Of choosing tokens, which generation_config.json and the tokenizer's files tell.
        *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id"),
        *("begin_suppress_tokens", "suppress_tokens", "forced_bos_token_id", "forced_eos_token_id"),
        *("temperature", "top_k", "top_p", "typical_p", "do_sample", "num_beams", "num_beam_groups", "max_length"),
        *("min_length", "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "early_stopping"),
        *("encoder_no_repeat_ngram_size", "diversity_penalty", "bad_words_ids", "num_return_sequences"),
        *("remove_invalid_values", "exponential_decay_length_penalty", "return_dict_in_generate", "output_scores"),
        # Of other senses, whose towers a text model leaves out; of the draft head, as the tensors tell.
        *("vision_config", "audio_config", "image_token_id", "video_token_id", "vision_start_token_id"),
        *("vision_end_token_id", "vision_token_id", "image_token_index", "boi_token_index", "eoi_token_index"),
        *("boi_token_id", "eoi_token_id", "mm_tokens_per_image", "mtp_num_hidden_layers", "language_model_only"),
    )
)
# These keys change the mathematics, except with these values.
REFUSED: Mapping[str, tuple[object, ...]] = {
    **dict.fromkeys(("is_causal", "attn_output_gate"), (True,)),
    **dict.fromkeys(
        (
            *("use_bidirectional_attention", "is_encoder_decoder", "add_cross_attention", "alibi", "parallel_attn"),
            *("use_parallel_residual", "use_qk_norm", "mtp_use_dedicated_embeddings", "tie_encoder_decoder"),
        ),
        (False,),
    ),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping", "clip_qkv", "n_shared_experts"), (0,)),
    **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace"), (0, 1)),
    **dict.fromkeys(
        (
            *("logit_scale", "logits_scaling", "embedding_multiplier", "residual_multiplier", "routed_scaling_factor"),
            "partial_rotary_factor",
        ),
        (1,),
    ),
    "attention_multiplier": (),
    "query_pre_attn_scalar": (),
    "scoring_func": ("softmax",),
    "use_sliding_window": (False,),
    "chunk_size_feed_forward": (0,),
    "cross_attention_hidden_size": (),
}
# Of rope_parameters or rope_scaling, of one kind of layers.
_ROPE = frozenset(
    (
        *("rope_theta", "rope_type", "type", "factor", "original_max_position_embeddings", "attention_factor"),
        *("beta_fast", "beta_slow", "low_freq_factor", "high_freq_factor", "mscale", "mscale_all_dim", "truncate"),
        *("partial_rotary_factor", "mrope_section", "mrope_interleaved", "finetuned"),
    )
)
_FULL = "full_attention"


def unknown_keys(config: Metadata, architecture: str) -> dict[str, str]:
    """Refuse what the family does not compute; return the other keys that are not known, with their values as JSON.

    Raises UnsupportedModelError with the key's name and value.
    """
    unknown: dict[str, str] = {}
    for key, value in config.values.items():
        if key in _USED or key in _OWN[architecture] or key in HARMLESS:
            continue
        if key == "sliding_window" and config.values.get("use_sliding_window") is False:
            continue
        if key == "layer_types" and value == [_FULL] * config.integer("num_hidden_layers"):
            continue
        if key in (*REFUSED, "sliding_window", "layer_types"):
            _check_neutral(config, key, value)
        else:
            unknown[PREFIX + key] = json.dumps(value)
    return unknown | _unknown_of_rope(config, architecture)


def _check_neutral(config: Metadata, key: str, value: object) -> None:
    neutral = REFUSED.get(key, ())
    if not any(type(value) in (type(each), float, int) and value == each for each in neutral):
        raise UnsupportedModelError(
            f"{config.path} says {key} = {json.dumps(value)[:60]}, which this version cannot compute for a"
            f" {config.values['model_type']} model; use another copy of the model, or a program that can."
        )


def _unknown_of_rope(config: Metadata, architecture: str) -> dict[str, str]:
    unknown: dict[str, str] = {}
    for name in ("rope_parameters", "rope_scaling"):
        said = config.values.get(name)
        if not isinstance(said, dict):
            continue
        kinds = {key: kind for key, kind in said.items() if isinstance(kind, dict)}  # nested by the kind of layers
        beside = {key: value for key, value in said.items() if key not in kinds}
        for part in (*kinds.values(), beside):
            unknown |= {f"{PREFIX}{name}.{key}": json.dumps(part[key]) for key in part.keys() - _ROPE}
            turned = part.get("partial_rotary_factor")
            if turned is not None and "partial_rotary_factor" not in _OWN[architecture]:
                _check_neutral(config, "partial_rotary_factor", turned)
    return unknown
