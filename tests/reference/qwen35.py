"""A float64 forward pass of the qwen35 families in plain NumPy, read from the formulas and not from our kernels."""

from pathlib import Path

import gguf
import numpy as np

from tests.reference.llama import Float64, product


class ReferenceQwen35:
    """One GGUF file, read and dequantized by the `gguf` package."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        self._architecture = fields["general.architecture"]
        self._metadata = fields
        self._tensors = {
            tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
            for tensor in reader.tensors
        }
        self._layers = self._number("block_count") - self._number("nextn_predict_layers")

    def logits(self, tokens: list[int]) -> Float64:
        """[tokens, vocabulary]: row t holds the logits after token t."""
        return product(self.final(tokens), self._weight("output"))

    def final(self, tokens: list[int]) -> Float64:
        """[tokens, hidden]: the normalized hidden states that the head reads."""
        x = self._weight("token_embd")[tokens]
        for layer in range(self._layers):
            x = self._layer(x, f"blk.{layer}.")
        return self._norm(x, "output_norm")

    def draft(self, tokens: list[int]) -> Float64:
        """[tokens - 1, vocabulary]: row t holds the draft's logits of token t + 2."""
        name = f"blk.{self._layers}."
        before = self._norm(self.final(tokens)[:-1], f"{name}nextn.hnorm")
        after = self._norm(self._weight("token_embd")[tokens[1:]], f"{name}nextn.enorm")
        x = self._layer(product(np.hstack([after, before]), self._weight(f"{name}nextn.eh_proj")), name)
        return product(self._norm(x, f"{name}nextn.shared_head_norm"), self._weight("output"))

    def _layer(self, x: Float64, name: str) -> Float64:
        n = self._norm(x, name + "attn_norm")
        x = x + (self._delta(n, name) if f"{name}ssm_a" in self._tensors else self._attention(n, name))
        n = self._norm(x, name + "post_attention_norm")
        return x + (self._experts(n, name) if f"{name}ffn_gate_inp.weight" in self._tensors else self._ffn(n, name))

    def _delta(self, x: Float64, name: str) -> Float64:
        """Gated DeltaNet (Yang et al., 2024): decay, read, write, read out, token by token."""
        rows, dim = len(x), self._number("ssm.state_size")
        key_heads, heads = self._number("ssm.group_count"), self._number("ssm.time_step_rank")
        raw = np.vstack([np.zeros((3, (2 * key_heads + heads) * dim)), product(x, self._weight(name + "attn_qkv"))])
        taps = self._weight(name + "ssm_conv1d")
        mixed = silu(np.sum([raw[i : i + rows] * taps[:, i] for i in range(4)], axis=0))
        q, k, v = (part.reshape(rows, -1, dim) for part in np.split(mixed, [key_heads * dim, 2 * key_heads * dim], 1))
        q, k = (u / np.sqrt((u**2).sum(-1, keepdims=True) + 1e-6) for u in (q, k))
        a = product(x, self._weight(name + "ssm_alpha")) + self._tensors[name + "ssm_dt.bias"]
        decay = np.exp(self._tensors[name + "ssm_a"] * np.logaddexp(0, a))
        beta = sigmoid(product(x, self._weight(name + "ssm_beta")))
        output = np.empty((rows, heads, dim))
        for head in range(heads):
            state, shared = np.zeros((dim, dim)), head % key_heads
            for t in range(rows):
                state = decay[t, head] * state
                error = beta[t, head] * (v[t, head] - state.T @ k[t, shared])
                state = state + np.outer(k[t, shared], error)
                output[t, head] = state.T @ q[t, shared] / np.sqrt(dim)
        z = product(x, self._weight(name + "attn_gate")).reshape(output.shape)
        gated = self._norm(output, name + "ssm_norm") * silu(z)
        return product(gated.reshape(rows, -1), self._weight(name + "ssm_out"))

    def _attention(self, x: Float64, name: str) -> Float64:
        """Causal attention with normed heads, times a gate of each value."""
        rows, heads, kv_heads = len(x), self._number("attention.head_count"), self._number("attention.head_count_kv")
        dim = self._number("attention.key_length")
        both = product(x, self._weight(name + "attn_q")).reshape(rows, heads, 2, dim)
        query, gate = self._rotate(self._norm(both[:, :, 0], name + "attn_q_norm")), both[:, :, 1]
        key = product(x, self._weight(name + "attn_k")).reshape(rows, kv_heads, dim)
        key = np.repeat(self._rotate(self._norm(key, name + "attn_k_norm")), heads // kv_heads, axis=1)
        value = product(x, self._weight(name + "attn_v")).reshape(rows, kv_heads, dim)
        scores = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(dim)
        weights = softmax(np.where(np.tri(rows, dtype=bool), scores, -np.inf))
        attended = np.einsum("hqk,khd->qhd", weights, np.repeat(value, heads // kv_heads, axis=1))
        return product((attended * sigmoid(gate)).reshape(rows, -1), self._weight(name + "attn_output"))

    def _rotate(self, x: Float64) -> Float64:
        """Turn the pairs (i, i + half) of the first dimensions of each head (Su et al., 2021)."""
        half = self._number("rope.dimension_count") // 2
        frequencies = float(self._metadata[f"{self._architecture}.rope.freq_base"]) ** (-np.arange(half) / half)
        turns = np.exp(1j * np.arange(len(x))[:, None] * frequencies)[:, None]
        turned = (x[..., :half] + 1j * x[..., half : 2 * half]) * turns
        return np.concatenate([turned.real, turned.imag, x[..., 2 * half :]], axis=-1)

    def _experts(self, x: Float64, name: str) -> Float64:
        """The best experts, weighted by their share of the router's softmax, and a gated one for all rows."""
        scores = softmax(product(x, self._weight(name + "ffn_gate_inp")))
        active = self._number("expert_used_count")
        y = sigmoid(x @ self._weight(name + "ffn_gate_inp_shexp").ravel())[:, None] * self._ffn(x, name, "_shexp")
        for t, row in enumerate(scores):
            chosen = np.argsort(-row, kind="stable")[:active]
            for expert in chosen:
                y[t] += row[expert] / row[chosen].sum() * self._ffn(x[t], name, "_exps", expert)
        return y

    def _ffn(self, x: Float64, name: str, suffix: str = "", expert: int | None = None) -> Float64:
        gate, up, down = (self._weight(f"{name}ffn_{part}{suffix}") for part in ("gate", "up", "down"))
        if expert is not None:
            gate, up, down = gate[expert], up[expert], down[expert]
        return product(silu(product(x, gate)) * product(x, up), down)

    def _norm(self, x: Float64, name: str) -> Float64:
        """RMSNorm (Zhang and Sennrich, 2019)."""
        epsilon = float(self._metadata[f"{self._architecture}.attention.layer_norm_rms_epsilon"])
        normed: Float64 = x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + epsilon)
        return normed * self._weight(name)

    def _weight(self, name: str) -> Float64:
        return self._tensors[f"{name}.weight"]

    def _number(self, name: str) -> int:
        return int(self._metadata[f"{self._architecture}.{name}"])


def sigmoid(x: Float64) -> Float64:
    result: Float64 = 1 / (1 + np.exp(-x))
    return result


def silu(x: Float64) -> Float64:
    return x * sigmoid(x)


def softmax(x: Float64) -> Float64:
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    result: Float64 = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return result
