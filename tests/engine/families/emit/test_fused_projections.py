"""Files that hold queries, keys and values in one tensor give the bits of those that hold three."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.engine.runners import feed, loaded, random_tokens, same_bits
from tests.tiny.families import write_tiny_family
from tests.tiny.models import write_out


def join_projections(source: Path, target: Path, architecture: str, layers: int) -> None:
    """Copy a model with attn_q, attn_k and attn_v of each layer joined, their biases too."""
    reader, writer = gguf.GGUFReader(source), gguf.GGUFWriter(target, architecture)
    for field in reader.fields.values():
        if not field.name.startswith(("GGUF.", "general.architecture")):
            writer.add_key_value(
                field.name, field.contents(), field.types[0], *field.types[-1:][: len(field.types) - 1]
            )
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    for layer in range(layers):
        for kind in ("weight", "bias"):
            names = [f"blk.{layer}.attn_{part}.{kind}" for part in "qkv"]
            if names[0] in tensors:
                parts = [tensors.pop(name) for name in names]
                joined = np.concatenate([part.data for part in parts])
                writer.add_tensor(f"blk.{layer}.attn_qkv.{kind}", joined, raw_dtype=parts[0].tensor_type)
    for tensor in tensors.values():
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    write_out(writer)


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "gemma3"])
def test_a_joined_tensor_gives_the_same_bits(tmp_path: Path, architecture: str) -> None:
    plain, joined = tmp_path / "plain.gguf", tmp_path / "joined.gguf"
    write_tiny_family(plain, architecture, types="Q8_0", kv_heads=1, head_dim=48, seed=2)
    join_projections(plain, joined, architecture, layers=2)
    with loaded(plain, threads=2) as runner, loaded(joined, threads=2) as other:
        tokens = random_tokens(runner, 70, seed=1)
        assert same_bits(feed(other, tokens, [0, 1], chunk=40), feed(runner, tokens, [0, 1], chunk=40))
        assert other.op_names != runner.op_names
