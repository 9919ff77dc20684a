"""Float64 forward passes of qwen2, qwen3 and gemma3 in plain NumPy: where they differ from llama."""

from pathlib import Path

import gguf
import numpy as np

from tests.reference.llama import Float64, ReferenceLlama, product


class ReferenceFamily(ReferenceLlama):
    """One GGUF file of one of these families; what its tensors are called tells what a layer does with them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        fields = {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}
        architecture = fields["general.architecture"]
        own = {key: value for key, value in fields.items() if key.startswith(f"{architecture}.")}
        self._metadata |= {f"llama.{key.partition('.')[2]}": value for key, value in own.items()}
        self._is_gemma = architecture == "gemma3"

    def final(self, tokens: list[int]) -> Float64:
        x = self._weight("token_embd")[tokens]
        if self._is_gemma:
            x = x * np.sqrt(x.shape[1])
        for layer in range(self._number("block_count")):
            name = f"blk.{layer}."
            x = x + self._after(self._attend(self._norm(x, name + "attn_norm"), layer), name + "post_attention_norm")
            x = x + self._after(self._feed_forward(self._norm(x, name + "ffn_norm"), name), name + "post_ffw_norm")
        return self._norm(x, "output_norm")

    def _after(self, x: Float64, norm: str) -> Float64:
        return self._norm(x, norm) if f"{norm}.weight" in self._tensors else x

    def _attend(self, x: Float64, layer: int) -> Float64:
        heads, kv_heads = self._number("attention.head_count"), self._number("attention.head_count_kv")
        rows, name = len(x), f"blk.{layer}."
        window, base = rows, float(self._metadata["llama.rope.freq_base"])
        if self._is_gemma and (layer + 1) % self._number("attention.sliding_window_pattern"):
            window, base = self._number("attention.sliding_window"), 10000.0
        query, key, value = (self._project(x, name + part) for part in ("attn_q", "attn_k", "attn_v"))
        query = self._turned(self._after(query.reshape(rows, heads, -1), name + "attn_q_norm"), base)
        key = self._turned(self._after(key.reshape(rows, kv_heads, -1), name + "attn_k_norm"), base)
        key, value = (np.repeat(part.reshape(rows, kv_heads, -1), heads // kv_heads, axis=1) for part in (key, value))
        scores = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(query.shape[-1])
        distance = np.arange(rows)[:, None] - np.arange(rows)
        scores = np.where((distance >= 0) & (distance < window), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        attended: Float64 = np.einsum("hqk,khd->qhd", weights, value).reshape(rows, -1)
        return product(attended, self._weight(name + "attn_output"))

    def _project(self, x: Float64, name: str) -> Float64:
        result: Float64 = product(x, self._weight(name)) + self._tensors.get(f"{name}.bias", 0.0)
        return result

    def _turned(self, x: Float64, base: float) -> Float64:
        """Multiply pairs (i, i + half), as complex numbers, by e**(i * position * frequency)."""
        half = x.shape[-1] // 2
        turns = np.exp(1j * np.arange(len(x))[:, None] * base ** (-np.arange(half) / half))[:, None]
        turned = (x[..., :half] + 1j * x[..., half:]) * turns
        result: Float64 = np.concatenate([turned.real, turned.imag], axis=-1)
        return result

    def _feed_forward(self, x: Float64, name: str) -> Float64:
        if not self._is_gemma:
            return super()._feed_forward(x, name)
        gate, up = (product(x, self._weight(name + part)) for part in ("ffn_gate", "ffn_up"))
        gelu = gate / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        return product(gelu * up, self._weight(name + "ffn_down"))
