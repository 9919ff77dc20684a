"""A float64 forward pass of Qwen3.5 and Qwen3-Next over Hugging Face's tensors, in plain NumPy.

Formulas and layouts are those of transformers' modeling_qwen3_5 and modeling_qwen3_next.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.engine.weights.safetensors_bytes import stored_tensors
from tests.reference.llama import Float64, product
from tests.reference.qwen35 import sigmoid, silu, softmax


class ReferenceHybrid:
    """One folder of config.json and model.safetensors."""

    def __init__(self, folder: Path) -> None:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self._config = config | config.get("text_config", {})
        tensors = stored_tensors(folder / "model.safetensors").items()
        self._tensors = {name.replace("language_model.", "", 1): values.astype(np.float64) for name, values in tensors}

    def logits(self, tokens: list[int]) -> Float64:
        """[tokens, vocabulary]: row t holds the logits after token t."""
        return product(self.final(tokens), self._weight("lm_head"))

    def final(self, tokens: list[int]) -> Float64:
        """[tokens, hidden]: the normalized hidden states that the head reads."""
        x = self._weight("model.embed_tokens")[tokens]
        for layer in range(self._config["num_hidden_layers"]):
            x = self._layer(x, f"model.layers.{layer}.")
        return self._norm(x, "model.norm")

    def draft(self, tokens: list[int]) -> Float64:
        """[tokens - 1, vocabulary]: row t holds the draft's logits of token t + 2."""
        before = self._norm(self.final(tokens)[:-1], "mtp.pre_fc_norm_hidden")
        after = self._norm(self._weight("model.embed_tokens")[tokens[1:]], "mtp.pre_fc_norm_embedding")
        x = self._layer(product(np.hstack([after, before]), self._weight("mtp.fc")), "mtp.layers.0.")
        return product(self._norm(x, "mtp.norm"), self._weight("lm_head"))

    def _layer(self, x: Float64, name: str) -> Float64:
        n = self._norm(x, name + "input_layernorm")
        is_recurrent = f"{name}linear_attn.A_log" in self._tensors
        x = x + (self._delta(n, name + "linear_attn.") if is_recurrent else self._attention(n, name + "self_attn."))
        n = self._norm(x, name + "post_attention_layernorm")
        return x + (
            self._mixture(n, name + "mlp.") if f"{name}mlp.gate.weight" in self._tensors else self._ffn(n, name)
        )

    def _projections(self, x: Float64, name: str) -> tuple[Float64, Float64, Float64, Float64]:
        """q, k and v head by head [rows, channels], z [rows, value heads, dim], b and a [rows, value heads]."""
        rows, key_heads, heads, dim = len(x), *self._sizes()
        if f"{name}in_proj_qkvz.weight" not in self._tensors:
            qkv, z, b, a = (product(x, self._weight(f"{name}in_proj_{part}")) for part in ("qkv", "z", "b", "a"))
            return qkv, z.reshape(rows, heads, dim), b, a
        repeats = heads // key_heads
        by_head = product(x, self._weight(name + "in_proj_qkvz")).reshape(rows, key_heads, (2 + 2 * repeats) * dim)
        q, k, v, z = np.split(by_head, [dim, 2 * dim, (2 + repeats) * dim], axis=2)
        b, a = np.split(product(x, self._weight(name + "in_proj_ba")).reshape(rows, key_heads, 2 * repeats), 2, axis=2)
        qkv = np.hstack([part.reshape(rows, -1) for part in (q, k, v)])
        return qkv, z.reshape(rows, heads, dim), b.reshape(rows, heads), a.reshape(rows, heads)

    def _delta(self, x: Float64, name: str) -> Float64:
        """The recurrent form of the gated delta rule; K head h // repeats is that of V head h."""
        rows, key_heads, heads, dim = len(x), *self._sizes()
        qkv, z, b, a = self._projections(x, name)
        taps = self._weight(name + "conv1d")[:, 0]
        raw = np.vstack([np.zeros((3, qkv.shape[1])), qkv])
        mixed = silu(np.sum([raw[i : i + rows] * taps[:, i] for i in range(4)], axis=0))
        q, k, v = (part.reshape(rows, -1, dim) for part in np.split(mixed, [key_heads * dim, 2 * key_heads * dim], 1))
        q, k = (
            np.repeat(u / np.sqrt((u**2).sum(-1, keepdims=True) + 1e-6), heads // key_heads, axis=1) for u in (q, k)
        )
        decay = np.exp(-np.exp(self._tensors[name + "A_log"]) * np.logaddexp(0, a + self._tensors[name + "dt_bias"]))
        beta, state, output = sigmoid(b), np.zeros((heads, dim, dim)), np.empty((rows, heads, dim))
        for t in range(rows):
            state = decay[t, :, None, None] * state
            error = beta[t, :, None] * (v[t] - np.einsum("hkv,hk->hv", state, k[t]))
            state = state + k[t, :, :, None] * error[:, None]
            output[t] = np.einsum("hkv,hk->hv", state, q[t]) / np.sqrt(dim)
        normed = self._scaled(output) * self._weight(name + "norm")
        return product((normed * silu(z)).reshape(rows, -1), self._weight(name + "out_proj"))

    def _attention(self, x: Float64, name: str) -> Float64:
        """Causal attention with normed heads, times a gate of each value."""
        rows, dim = len(x), self._config["head_dim"]
        heads, kv_heads = self._config["num_attention_heads"], self._config["num_key_value_heads"]
        both = product(x, self._weight(name + "q_proj")).reshape(rows, heads, 2 * dim)
        query, gate = self._rotate(self._norm(both[..., :dim], name + "q_norm")), both[..., dim:]
        key = self._norm(product(x, self._weight(name + "k_proj")).reshape(rows, kv_heads, dim), name + "k_norm")
        key = np.repeat(self._rotate(key), heads // kv_heads, axis=1)
        value = product(x, self._weight(name + "v_proj")).reshape(rows, kv_heads, dim)
        scores = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(dim)
        weights = softmax(np.where(np.tri(rows, dtype=bool), scores, -np.inf))
        attended = np.einsum("hqk,khd->qhd", weights, np.repeat(value, heads // kv_heads, axis=1))
        return product((attended * sigmoid(gate)).reshape(rows, -1), self._weight(name + "o_proj"))

    def _rotate(self, x: Float64) -> Float64:
        """Turn the pairs (i, i + half) of the first dimensions of each head (Su et al., 2021)."""
        rope = self._config | self._config.get("rope_parameters", {})
        half = int(x.shape[-1] * rope["partial_rotary_factor"]) // 2
        turns = np.exp(1j * np.arange(len(x))[:, None] * rope["rope_theta"] ** (-np.arange(half) / half))[:, None]
        turned = (x[..., :half] + 1j * x[..., half : 2 * half]) * turns
        return np.concatenate([turned.real, turned.imag, x[..., 2 * half :]], axis=-1)

    def _mixture(self, x: Float64, name: str) -> Float64:
        """The best experts, weighted by their share of the router's softmax, and a gated one for all rows."""
        scores, active = softmax(product(x, self._weight(name + "gate"))), self._config["num_experts_per_tok"]
        shared = self._gated_ffn(
            x, *(self._weight(f"{name}shared_expert.{part}_proj") for part in ("gate", "up", "down"))
        )
        y = sigmoid(product(x, self._weight(name + "shared_expert_gate"))) * shared
        for t, row in enumerate(scores):
            chosen = np.argsort(-row, kind="stable")[:active]
            for expert in chosen:
                y[t] += row[expert] / row[chosen].sum() * self._gated_ffn(x[t], *self._expert(name, int(expert)))
        return y

    def _expert(self, name: str, expert: int) -> list[Float64]:
        merged = self._tensors.get(f"{name}experts.gate_up_proj")
        if merged is not None:
            return [*np.split(merged[expert], 2), self._tensors[f"{name}experts.down_proj"][expert]]
        return [self._weight(f"{name}experts.{expert}.{part}_proj") for part in ("gate", "up", "down")]

    def _ffn(self, x: Float64, name: str) -> Float64:
        return self._gated_ffn(x, *(self._weight(f"{name}mlp.{part}_proj") for part in ("gate", "up", "down")))

    @staticmethod
    def _gated_ffn(x: Float64, gate: Float64, up: Float64, down: Float64) -> Float64:
        return product(silu(product(x, gate)) * product(x, up), down)

    def _norm(self, x: Float64, name: str) -> Float64:
        """RMSNorm (Zhang and Sennrich, 2019), whose weights are stored around zero."""
        return self._scaled(x) * (1 + self._weight(name))

    def _scaled(self, x: Float64) -> Float64:
        scaled: Float64 = x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + self._config["rms_norm_eps"])
        return scaled

    def _sizes(self) -> tuple[int, int, int]:
        """K heads, V heads and dimensions of Gated DeltaNet."""
        return tuple(self._config[f"linear_{key}"] for key in ("num_key_heads", "num_value_heads", "key_head_dim"))

    def _weight(self, name: str) -> Float64:
        return self._tensors[f"{name}.weight"]
