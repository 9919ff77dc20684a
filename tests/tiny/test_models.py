"""The tiny models that other tests stand on: repeatable, of the types asked for, with a vocabulary for any text."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from engine.weights.files.gguf import GgufFile
from tests.tiny.models import write_tiny_llama


def test_equal_arguments_give_equal_files_and_another_seed_another_file(tmp_path: Path) -> None:
    first = write_tiny_llama(tmp_path / "first.gguf", types="Q4_1").read_bytes()
    assert write_tiny_llama(tmp_path / "second.gguf", types="Q4_1").read_bytes() == first
    assert write_tiny_llama(tmp_path / "third.gguf", types="Q4_1", seed=1).read_bytes() != first


def test_each_kind_of_matrix_can_have_its_own_type(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf", types={"attn_q": "Q5_1", "output": "Q8_0"}, tied=False)
    types = {name: info.type for name, info in GgufFile.open(path).tensors.items() if info.type != "F32"}
    assert types == {"blk.0.attn_q.weight": "Q5_1", "blk.1.attn_q.weight": "Q5_1", "output.weight": "Q8_0"}


def test_dimensions_are_those_asked_for(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf", layers=1, heads=6, kv_heads=3, head_dim=32, ffn=128, rope_freqs=True)
    file = GgufFile.open(path)
    assert file.metadata["llama.attention.key_length"] == 32
    shapes = {name.removesuffix(".weight"): info.shape for name, info in file.tensors.items()}
    assert shapes["token_embd"] == (288, 64)
    assert shapes["blk.0.attn_q"] == (192, 64)
    assert shapes["blk.0.attn_k"] == shapes["blk.0.attn_v"] == (96, 64)
    assert shapes["blk.0.attn_output"] == (64, 192)
    assert shapes["blk.0.ffn_down"] == (64, 128)
    assert shapes["rope_freqs"] == (16,)
    assert "output" not in shapes


def test_the_vocabulary_holds_any_text_and_merges_some(tmp_path: Path) -> None:
    metadata: dict[str, Any] = GgufFile.open(write_tiny_llama(tmp_path / "m.gguf")).metadata
    tokens, merges = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.merges"]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    assert len(vocabulary) == 288
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    assert tokenizer.encode("hello world").tokens == ["hello", "Ġworld"]
    text = "Zażółć 你好 🙂\n\x00"
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
