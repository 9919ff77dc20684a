"""Writes a llama model of real dimensions with random quantized weights as GGUF, for measuring speed.

    python -m benchmarks.synthetic OUT.gguf --type Q4_K --layers 16 --hidden 2048 --ffn 8192 --heads 32 --kv-heads 8

The logits are finite and mean nothing. The tokenizer knows the 256 bytes and filler tokens, so the file can be served.
Needs the `gguf` package. One matrix at a time is in memory.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from benchmarks.random_blocks import TYPES, random_matrix, row_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Dimensions of a llama model; the defaults are those of a model of a billion weights."""

    layers: int = 16
    hidden: int = 2048
    ffn: int = 8192
    heads: int = 32
    kv_heads: int = 8
    vocabulary: int = 32000
    context: int = 8192

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads


def write_synthetic_llama(path: Path, shape: Shape, *, type_name: str, head_type: str | None = None) -> None:
    """Write the model; every matrix is of `type_name`, but the embedding and the head of `head_type` if given.

    Raises ValueError where a width is no whole number of the type's blocks.
    """
    writer = gguf.GGUFWriter(path, "llama")
    _add_hyperparameters(writer, shape)
    _add_tokenizer(writer, shape.vocabulary)
    matrices, norms = _matrices(shape, type_name, head_type or type_name), _norms(shape)
    for name, (kind, rows, columns) in matrices.items():
        size = rows * row_bytes(kind, columns)
        ggml_type = gguf.GGMLQuantizationType[kind]
        writer.add_tensor_info(name, [rows, row_bytes(kind, columns)], np.dtype(np.uint8), size, ggml_type)
    for name in norms:
        writer.add_tensor_info(name, [shape.hidden], np.dtype(np.float32), 4 * shape.hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    random = np.random.default_rng(7)
    for kind, rows, columns in matrices.values():
        writer.write_tensor_data(random_matrix(random, kind, rows, columns, columns**-0.5))
    for _ in norms:
        writer.write_tensor_data(np.ones(shape.hidden, np.float32))
    writer.close()


def _matrices(shape: Shape, kind: str, head_kind: str) -> dict[str, tuple[str, int, int]]:
    """(type, rows, columns) of every matrix, by name."""
    query, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    found = {name: (head_kind, shape.vocabulary, shape.hidden) for name in ("token_embd.weight", "output.weight")}
    for layer in range(shape.layers):
        sizes = {
            "attn_q": (query, shape.hidden),
            "attn_k": (kv, shape.hidden),
            "attn_v": (kv, shape.hidden),
            "attn_output": (shape.hidden, query),
            "ffn_gate": (shape.ffn, shape.hidden),
            "ffn_up": (shape.ffn, shape.hidden),
            "ffn_down": (shape.hidden, shape.ffn),
        }
        found |= {f"blk.{layer}.{name}.weight": (kind, *size) for name, size in sizes.items()}
    return found


def _norms(shape: Shape) -> list[str]:
    layers = range(shape.layers)
    return ["output_norm.weight", *(f"blk.{i}.{part}_norm.weight" for i in layers for part in ("attn", "ffn"))]


def _add_hyperparameters(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_name("synthetic llama")
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_vocab_size(shape.vocabulary)


def _add_tokenizer(writer: gguf.GGUFWriter, vocabulary: int) -> None:
    letters = _byte_letters()
    fillers = [f"<filler_{index}>" for index in range(vocabulary - len(letters) - 1)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    fillers[0] = "ab"  # what the one merge makes
    writer.add_token_list([*letters, *fillers, "<|end|>"])
    writer.add_token_types([int(gguf.TokenType.NORMAL)] * (vocabulary - 1) + [int(gguf.TokenType.CONTROL)])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(vocabulary - 1)
    writer.add_add_bos_token(False)


def _byte_letters() -> list[str]:
    """GPT-2's printable character for each of the 256 bytes, in byte order."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    stand_ins = iter(range(256, 512))
    return [chr(byte if byte in printable else next(stand_ins)) for byte in range(256)]


def main(given: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.synthetic", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--type", default="Q4_K", choices=TYPES)
    parser.add_argument("--head-type", choices=TYPES, help="type of the embedding and the head [that of the rest]")
    defaults = Shape()
    for name in Shape.__dataclass_fields__:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(defaults, name))
    arguments = parser.parse_args(given)
    shape = Shape(**{name: getattr(arguments, name) for name in Shape.__dataclass_fields__})
    try:
        write_synthetic_llama(arguments.out, shape, type_name=arguments.type, head_type=arguments.head_type)
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
