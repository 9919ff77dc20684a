"""Writes tiny llama models of random weights as GGUF files, for tests that must not fetch anything."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.kernels.ops import MINIMUM_AT, SCALE_AT, random_matrix, set_halves

CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# Types that the gguf package cannot quantize to: their blocks are random.
RANDOM_BLOCKS = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4")
# In the byte alphabet of GPT-2, where "Ġ" stands for a space.
MERGES = ("h e", "t he", "Ġ the", "e r", "o n", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld")


def write_tiny_llama(
    path: Path,
    *,
    types: str | Mapping[str, str] = "F32",
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int | None = None,
    ffn: int = 96,
    vocab: int = 288,
    context: int = 512,
    tied: bool = True,
    rope_freqs: bool = False,
    seed: int = 0,
    pre: str = "smollm",
    tags: Sequence[str] = (),
    tokenizer: Mapping[str, object] | None = None,
    chat_template: str | None = CHATML,
) -> Path:
    """Write the model to `path` and return it; equal arguments give equal bytes.

    `types` is the weight type of every matrix, or one for each kind of matrix: {"attn_q": "Q4_1", "output": "Q8_0"},
    where those left out are F32. Norms are always F32. Quantized rows need `hidden`, `ffn` and `heads * head_dim` to be
    multiples of 32, or of 256 for k-quants and IQ4_XS. `vocab` is at least 272, and the number of tokens where
    `tokenizer`, which is GGUF metadata, replaces the one of `byte_level_tokenizer`.
    """
    head_dim = head_dim or hidden // heads
    writer = gguf.GGUFWriter(path, "llama")
    add_hyperparameters(writer, layers, hidden, heads, kv_heads, head_dim, ffn, vocab, context)
    add_metadata(writer, tokenizer or byte_level_tokenizer(vocab, pre, tags))
    if chat_template is not None:
        writer.add_chat_template(chat_template)
    weights = Weights(writer, types, seed)
    weights.matrix("token_embd", vocab, hidden)
    if not tied:
        weights.matrix("output", vocab, hidden)
    weights.norm("output_norm", hidden)
    if rope_freqs:  # divisors of the rotary frequencies, growing with the wavelength as those of llama 3 do
        writer.add_tensor("rope_freqs.weight", np.linspace(1, 8, head_dim // 2, dtype=np.float32))
    for layer in range(layers):
        add_layer(weights, f"blk.{layer}.", hidden, heads * head_dim, kv_heads * head_dim, ffn)
    write_out(writer)
    return path


def write_out(writer: gguf.GGUFWriter) -> None:
    """Write the file, and close it."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Weights:
    """Adds tensors of random values, each in the type that its kind is to have."""

    def __init__(self, writer: gguf.GGUFWriter, types: str | Mapping[str, str], seed: int) -> None:
        self._writer = writer
        self._types = types
        self._seed = seed
        self._random = np.random.default_rng(seed)

    def matrix(self, name: str, rows: int, columns: int) -> None:
        raw, ggml_type = self._random_matrix(name, rows, columns)
        self._writer.add_tensor(f"{name}.weight", raw, raw_dtype=ggml_type)

    def experts(self, name: str, count: int, rows: int, columns: int) -> None:
        """A matrix for each of `count` experts, in one tensor."""
        raw, ggml_type = self._random_matrix(name, count * rows, columns)
        self._writer.add_tensor(f"{name}.weight", raw.reshape(count, rows, -1), raw_dtype=ggml_type)

    def norm(self, name: str, size: int) -> None:
        values = 1 + self._random.standard_normal(size, dtype=np.float32) * np.float32(0.1)
        self._writer.add_tensor(f"{name}.weight", values)

    def _random_matrix(
        self, name: str, rows: int, columns: int
    ) -> tuple[NDArray[np.generic], gguf.GGMLQuantizationType]:
        """Rows as the writer takes them, and their type."""
        kind = name.rpartition(".")[2]
        type_name = self._types if isinstance(self._types, str) else self._types.get(kind, "F32")
        ggml_type = gguf.GGMLQuantizationType[type_name]
        if type_name in RANDOM_BLOCKS:
            self._seed += 1
            return _random_blocks(type_name, rows, columns, self._seed), ggml_type
        values = self._random.standard_normal((rows, columns), dtype=np.float32) * np.float32(columns**-0.5)
        return gguf.quants.quantize(values, ggml_type), ggml_type


def _random_blocks(type_name: str, rows: int, columns: int, seed: int) -> NDArray[np.uint8]:
    """Random numbers under scales that give the values the size of the other types' values."""
    ggml_type = gguf.GGMLQuantizationType[type_name]
    raw = random_matrix(type_name, rows, columns, seed)
    factor = columns**-0.5 / gguf.quants.dequantize(raw, ggml_type).std()
    blocks = raw.reshape(-1, gguf.GGML_QUANT_SIZES[ggml_type][1])
    for table in (SCALE_AT, MINIMUM_AT):
        if type_name in table:
            at = table[type_name]
            set_halves(blocks, at, np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16)[:, 0] * factor)
    return raw


def add_layer(weights: Weights, prefix: str, hidden: int, q_rows: int, kv_rows: int, ffn: int) -> None:
    """Add what attention and feed-forward of every dense family have."""
    weights.norm(prefix + "attn_norm", hidden)
    weights.matrix(prefix + "attn_q", q_rows, hidden)
    weights.matrix(prefix + "attn_k", kv_rows, hidden)
    weights.matrix(prefix + "attn_v", kv_rows, hidden)
    weights.matrix(prefix + "attn_output", hidden, q_rows)
    weights.norm(prefix + "ffn_norm", hidden)
    weights.matrix(prefix + "ffn_gate", ffn, hidden)
    weights.matrix(prefix + "ffn_up", ffn, hidden)
    weights.matrix(prefix + "ffn_down", hidden, ffn)


def add_hyperparameters(
    writer: gguf.GGUFWriter,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    ffn: int,
    vocab: int,
    context: int,
) -> None:
    writer.add_name("tiny llama")
    writer.add_block_count(layers)
    writer.add_context_length(context)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(head_dim)
    writer.add_vocab_size(vocab)


def byte_level_tokenizer(vocab: int, pre: str = "smollm", tags: Sequence[str] = ()) -> dict[str, object]:
    """GGUF metadata: the bytes, a few merges, filler words that no text reaches, user-defined tags, control tokens."""
    texts = [*byte_alphabet(), *(merge.replace(" ", "") for merge in MERGES)]
    fillers = vocab - len(texts) - len(tags) - len(CONTROL_TOKENS)
    assert fillers >= 0
    texts += [f"<filler_{index}>" for index in range(fillers)]
    tokens = [*texts, *tags, *CONTROL_TOKENS]
    normal, user, control = gguf.TokenType.NORMAL, gguf.TokenType.USER_DEFINED, gguf.TokenType.CONTROL
    types = [normal] * len(texts) + [user] * len(tags) + [control] * len(CONTROL_TOKENS)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [int(kind) for kind in types],
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.bos_token_id": tokens.index("<|im_start|>"),
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
        "tokenizer.ggml.add_bos_token": False,
    }


def add_metadata(writer: gguf.GGUFWriter, metadata: Mapping[str, object]) -> None:
    for key, value in metadata.items():
        match value:
            case bool():
                writer.add_bool(key, value)
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case str():
                writer.add_string(key, value)
            case list():
                writer.add_array(key, value)


def byte_alphabet() -> list[str]:
    """GPT-2's printable character for each of the 256 bytes, in byte order."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    stand_ins = iter(range(256, 512))
    return [chr(byte if byte in printable else next(stand_ins)) for byte in range(256)]
