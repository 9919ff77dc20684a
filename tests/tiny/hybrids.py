"""Writes tiny Qwen3.5 and Qwen3-Next models of random weights as folders of safetensors in Hugging Face's layouts."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.engine.weights.safetensors_bytes import write_folder

Tensors = dict[str, NDArray[np.float32]]
HIDDEN, VOCABULARY, WIDTH, EXPERTS, LAYERS = 64, 288, 32, 6, 4
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 32
KEY_HEADS, VALUE_HEADS, STATE = 2, 6, 16  # of Gated DeltaNet: three V heads for each K head
CHANNELS = (2 * KEY_HEADS + VALUE_HEADS) * STATE


def write_tiny_hybrid(folder: Path, model_type: str, seed: int = 0) -> Path:
    """Write a model of the type qwen3_5 (dense) or qwen3_next (mixture, experts one by one), with a draft head."""
    return write_folder(folder, hybrid_config(model_type), hybrid_tensors(model_type, seed))


def hybrid_config(model_type: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "max_position_embeddings": 512,
        "vocab_size": VOCABULARY,
        "rms_norm_eps": 1e-6,
        "full_attention_interval": 2,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": STATE,
        "linear_value_head_dim": STATE,
        "linear_num_key_heads": KEY_HEADS,
        "linear_num_value_heads": VALUE_HEADS,
        "tie_word_embeddings": False,
        "intermediate_size": WIDTH,
    }
    if model_type == "qwen3_next":
        mixture: dict[str, Any] = {
            "num_experts": EXPERTS,
            "num_experts_per_tok": 2,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
        }
        mixture |= {"moe_intermediate_size": WIDTH, "shared_expert_intermediate_size": WIDTH, "mlp_only_layers": []}
        return config | mixture | {"model_type": model_type, "rope_theta": 1e4, "partial_rotary_factor": 0.25}
    rope = {"rope_theta": 1e4, "partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
    return {"model_type": model_type, "text_config": config | {"rope_parameters": rope | {"rope_type": "default"}}}


def hybrid_tensors(model_type: str, seed: int) -> Tensors:
    """All tensors under the names of their model type."""
    make = _Maker(model_type == "qwen3_next", seed)
    prefix = "model." if make.is_next else "model.language_model."
    make.matrix(prefix + "embed_tokens", VOCABULARY, HIDDEN)
    make.matrix("lm_head", VOCABULARY, HIDDEN)
    make.norm(prefix + "norm", HIDDEN)
    for layer in range(LAYERS):
        make.layer(f"{prefix}layers.{layer}.", is_recurrent=layer % 2 == 0)
    make.matrix("mtp.fc", HIDDEN, 2 * HIDDEN)
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        make.norm(f"mtp.{name}", HIDDEN)
    make.layer("mtp.layers.0.", is_recurrent=False)
    return make.tensors


class _Maker:
    def __init__(self, is_next: bool, seed: int) -> None:
        self.is_next = is_next
        self.tensors: Tensors = {}
        self._random = np.random.default_rng(seed)

    def matrix(self, name: str, rows: int, columns: int) -> None:
        self.tensors[f"{name}.weight"] = self._normal(rows, columns) * np.float32(columns**-0.5)

    def norm(self, name: str, size: int, around: int = 0) -> None:
        self.tensors[f"{name}.weight"] = around + self._normal(size) * np.float32(0.1)

    def layer(self, name: str, *, is_recurrent: bool) -> None:
        self.norm(name + "input_layernorm", HIDDEN)
        self.norm(name + "post_attention_layernorm", HIDDEN)
        if is_recurrent:
            self._delta(name + "linear_attn.")
        else:
            self._attention(name + "self_attn.")
        if not self.is_next:
            self._feed_forward(name + "mlp.")
            return
        self.matrix(name + "mlp.gate", EXPERTS, HIDDEN)
        self.matrix(name + "mlp.shared_expert_gate", 1, HIDDEN)
        for expert in ("shared_expert", *(f"experts.{number}" for number in range(EXPERTS))):
            self._feed_forward(f"{name}mlp.{expert}.")

    def _feed_forward(self, name: str) -> None:
        self.matrix(name + "gate_proj", WIDTH, HIDDEN)
        self.matrix(name + "up_proj", WIDTH, HIDDEN)
        self.matrix(name + "down_proj", HIDDEN, WIDTH)

    def _attention(self, name: str) -> None:
        self.matrix(name + "q_proj", 2 * HEADS * HEAD_DIM, HIDDEN)
        self.matrix(name + "k_proj", KV_HEADS * HEAD_DIM, HIDDEN)
        self.matrix(name + "v_proj", KV_HEADS * HEAD_DIM, HIDDEN)
        self.matrix(name + "o_proj", HIDDEN, HEADS * HEAD_DIM)
        self.norm(name + "q_norm", HEAD_DIM)
        self.norm(name + "k_norm", HEAD_DIM)

    def _delta(self, name: str) -> None:
        inner = VALUE_HEADS * STATE
        if self.is_next:
            self.matrix(name + "in_proj_qkvz", CHANNELS + inner, HIDDEN)
            self.matrix(name + "in_proj_ba", 2 * VALUE_HEADS, HIDDEN)
        else:
            self.matrix(name + "in_proj_qkv", CHANNELS, HIDDEN)
            self.matrix(name + "in_proj_z", inner, HIDDEN)
            self.matrix(name + "in_proj_b", VALUE_HEADS, HIDDEN)
            self.matrix(name + "in_proj_a", VALUE_HEADS, HIDDEN)
        self.tensors[name + "A_log"] = np.log(self._random.uniform(0.05, 1, VALUE_HEADS)).astype(np.float32)
        self.tensors[name + "dt_bias"] = self._normal(VALUE_HEADS) - 1
        self.tensors[name + "conv1d.weight"] = self._normal(CHANNELS, 1, 4) * np.float32(0.5)
        self.norm(name + "norm", STATE, around=1)
        self.matrix(name + "out_proj", HIDDEN, inner)

    def _normal(self, *shape: int) -> NDArray[np.float32]:
        return self._random.standard_normal(shape, dtype=np.float32)
