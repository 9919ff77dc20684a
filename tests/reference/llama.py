"""A float64 forward pass of the llama family in plain NumPy, read from the papers and not from our kernels."""

from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


class ReferenceLlama:
    """One GGUF file, read and dequantized by the `gguf` package."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self._metadata = {name: field.contents() for name, field in reader.fields.items() if name.startswith("llama.")}
        self._tensors = {
            tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
            for tensor in reader.tensors
        }

    def logits(self, tokens: list[int]) -> Float64:
        """[tokens, vocabulary]: row t holds the logits after token t."""
        head = "output" if "output.weight" in self._tensors else "token_embd"
        return product(self.final(tokens), self._weight(head))

    def final(self, tokens: list[int]) -> Float64:
        """[tokens, hidden]: the normalized hidden states that the head reads."""
        x = self._weight("token_embd")[tokens]
        for layer in range(self._number("block_count")):
            x = x + self._attention(self._norm(x, f"blk.{layer}.attn_norm"), f"blk.{layer}.")
            x = x + self._feed_forward(self._norm(x, f"blk.{layer}.ffn_norm"), f"blk.{layer}.")
        return self._norm(x, "output_norm")

    def _attention(self, x: Float64, name: str) -> Float64:
        """Causal softmax(q k / sqrt(d)) v, where query head h reads KV head h // group (Ainslie et al., GQA, 2023)."""
        heads, kv_heads = self._number("attention.head_count"), self._number("attention.head_count_kv")
        rows, group = len(x), heads // kv_heads
        query = self._rotate(self._linear(x, name + "attn_q").reshape(rows, heads, -1))
        key = self._rotate(self._linear(x, name + "attn_k").reshape(rows, kv_heads, -1))
        value = self._linear(x, name + "attn_v").reshape(rows, kv_heads, -1)
        key, value = np.repeat(key, group, axis=1), np.repeat(value, group, axis=1)
        scores = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(query.shape[-1])
        scores = np.where(np.tri(rows, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        attended: Float64 = np.einsum("hqk,khd->qhd", weights, value).reshape(rows, -1)
        return self._linear(attended, name + "attn_output")

    def _rotate(self, x: Float64) -> Float64:
        """Multiply each pair of neighbours, as a complex number, by e**(i * position * frequency) (Su et al., 2021)."""
        turning = self._number("rope.dimension_count")
        frequencies = self._metadata.get("llama.rope.freq_base", 10000.0) ** (-np.arange(0, turning, 2) / turning)
        frequencies = frequencies / self._tensors.get("rope_freqs.weight", np.ones(turning // 2))
        if self._metadata.get("llama.rope.scaling.type") == "linear":
            frequencies = frequencies / self._metadata["llama.rope.scaling.factor"]
        turns = np.exp(1j * np.arange(len(x))[:, None] * frequencies)[:, None]
        turned = (x[..., 0:turning:2] + 1j * x[..., 1:turning:2]) * turns
        result = x.copy()
        result[..., 0:turning:2], result[..., 1:turning:2] = turned.real, turned.imag
        return result

    def _feed_forward(self, x: Float64, name: str) -> Float64:
        """SwiGLU (Shazeer, 2020)."""
        gate, up = (self._linear(x, name + part) for part in ("ffn_gate", "ffn_up"))
        return self._linear(gate / (1 + np.exp(-gate)) * up, name + "ffn_down")

    def _linear(self, x: Float64, name: str) -> Float64:
        """W x, and the bias where there is one."""
        bias = self._tensors.get(f"{name}.bias")
        return product(x, self._weight(name)) + (0.0 if bias is None else bias)

    def _norm(self, x: Float64, name: str) -> Float64:
        """RMSNorm (Zhang and Sennrich, 2019)."""
        epsilon = float(self._metadata["llama.attention.layer_norm_rms_epsilon"])
        mean_square = np.mean(x**2, axis=-1, keepdims=True)
        normed: Float64 = x / np.sqrt(mean_square + epsilon)
        return normed * self._weight(name)

    def _weight(self, name: str) -> Float64:
        return self._tensors[f"{name}.weight"]

    def _number(self, name: str) -> int:
        return int(self._metadata[f"llama.{name}"])


def product(x: Float64, weight: Float64) -> Float64:
    """x, [rows, columns], times a matrix as files hold it, [outputs, columns]."""
    result: Float64 = x @ weight.T
    return result
