"""Pads a llama model with zeros to widths that k-quants can hold (multiples of 256), without changing its function.

    python -m benchmarks.widen smollm2-135m.gguf WIDE.gguf --type F32

Rows of the residual stream get zeros at their end: zero columns in the matrices that read it, zero rows in those that
write it. Whole KV groups of heads are added, whose queries, keys and values are zero; FFN rows likewise. An RMS norm
then divides by the mean over `wide` instead of `narrow` values, which is made up for exactly (but for rounding):

    mean_narrow(x^2) + e = (mean_wide(x^2) + e * narrow / wide) * wide / narrow
    so epsilon becomes e * narrow / wide, and the norm's weights w * sqrt(narrow / wide)

All metadata is kept. Needs the `gguf` package.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

_WIDTH = 256  # values of a k-quant's block
# Those that the `gguf` package can quantize to; benchmarks/llamacpp_baseline.py makes the others from F32.
TYPES = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4")
Float32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """The dimensions that padding changes; `query` and `kv` are heads times the length of a head."""

    hidden: int
    ffn: int
    query: int
    kv: int
    head_dim: int

    @classmethod
    def of(cls, reader: gguf.GGUFReader) -> "Widths":
        """Read the model's own widths."""
        hidden, heads = _number(reader, "embedding_length"), _number(reader, "attention.head_count")
        head_dim = _number(reader, "attention.key_length", hidden // heads)
        kv_heads = _number(reader, "attention.head_count_kv", heads)
        return cls(
            hidden=hidden,
            ffn=_number(reader, "feed_forward_length"),
            query=heads * head_dim,
            kv=kv_heads * head_dim,
            head_dim=head_dim,
        )

    def padded(self) -> "Widths":
        """The next widths that are multiples of 256; query heads grow by whole groups."""
        group, kv = self.query // self.kv, self.kv
        while group * kv % _WIDTH:
            kv += self.head_dim
        return Widths(
            hidden=_round_up(self.hidden), ffn=_round_up(self.ffn), query=group * kv, kv=kv, head_dim=self.head_dim
        )


def widen(source: Path, target: Path, *, type_name: str = "F32") -> None:
    """Write the padded model; its matrices are of `type_name`, its vectors F32."""
    reader = gguf.GGUFReader(source)
    narrow = Widths.of(reader)
    wide = narrow.padded()
    writer = gguf.GGUFWriter(target, "llama")
    _add_metadata(writer, reader, narrow, wide)
    kind = gguf.GGMLQuantizationType[type_name]
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        padded = _pad(tensor.name, np.asarray(values, np.float32), narrow, wide)
        stored_as = kind if padded.ndim > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, gguf.quants.quantize(padded, stored_as), raw_dtype=stored_as)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _pad(name: str, values: Float32, narrow: Widths, wide: Widths) -> Float32:
    """Pad one tensor; those of other shapes than a llama's matrices and norms stay as they are."""
    kind = name.split(".")[-2]
    if kind.endswith("norm"):
        return _with_zeros(values * np.float32(np.sqrt(narrow.hidden / wide.hidden)), wide.hidden)
    rows, columns = {
        "token_embd": (None, "hidden"),
        "output": (None, "hidden"),
        "attn_q": ("query", "hidden"),
        "attn_k": ("kv", "hidden"),
        "attn_v": ("kv", "hidden"),
        "attn_output": ("hidden", "query"),
        "ffn_gate": ("ffn", "hidden"),
        "ffn_up": ("ffn", "hidden"),
        "ffn_down": ("hidden", "ffn"),
    }.get(kind, (None, None))
    return _with_zeros(values, *(getattr(wide, width) if width else None for width in (rows, columns)))


def _with_zeros(values: Float32, *sizes: int | None) -> Float32:
    """Add zeros at the end of each axis up to its size; None leaves an axis as it is."""
    if sizes == (None, None):
        return values
    pairs = zip(values.shape, sizes, strict=True)
    return np.pad(values, [(0, 0 if size is None else size - length) for length, size in pairs])


def _add_metadata(writer: gguf.GGUFWriter, reader: gguf.GGUFReader, narrow: Widths, wide: Widths) -> None:
    epsilon = float(reader.fields["llama.attention.layer_norm_rms_epsilon"].contents())
    changed = {
        "llama.embedding_length": wide.hidden,
        "llama.feed_forward_length": wide.ffn,
        "llama.attention.head_count": wide.query // wide.head_dim,
        "llama.attention.head_count_kv": wide.kv // wide.head_dim,
        "llama.attention.key_length": wide.head_dim,
        "llama.attention.value_length": wide.head_dim,
        "llama.rope.dimension_count": _number(reader, "rope.dimension_count", wide.head_dim),
    }
    for name, value in changed.items():
        writer.add_uint32(name, value)
    writer.add_layer_norm_rms_eps(epsilon * narrow.hidden / wide.hidden)
    ours = {*changed, "llama.attention.layer_norm_rms_epsilon", "general.architecture", "general.file_type"}
    for name, field in reader.fields.items():
        if name not in ours and not name.startswith("GGUF."):
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)


def _number(reader: gguf.GGUFReader, name: str, default: int | None = None) -> int:
    field = reader.fields.get(f"llama.{name}")
    if field is None and default is not None:
        return default
    if field is None:
        raise ValueError(f"the model has no llama.{name}")
    return int(field.contents())


def _round_up(width: int) -> int:
    return -(-width // _WIDTH) * _WIDTH


def main(given: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.widen", description=__doc__.partition("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--type", default="F32", choices=TYPES)
    arguments = parser.parse_args(given)
    widen(arguments.source, arguments.target, type_name=arguments.type)


if __name__ == "__main__":
    main()
