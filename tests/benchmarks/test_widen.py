"""Widening changes the widths and not the function."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from benchmarks.widen import main, widen
from tests.reference.llama import ReferenceLlama
from tests.tiny.models import write_tiny_llama

TOKENS = np.random.default_rng(0).integers(0, 288, 40).tolist()
MODELS: dict[str, dict[str, object]] = {
    "three heads for each KV head": {"hidden": 96, "heads": 6, "kv_heads": 2, "head_dim": 16, "types": "Q4_1"},
    "a head of its own": {"hidden": 64, "heads": 4, "kv_heads": 4, "ffn": 320, "tied": False},
    "rotary divisors": {"hidden": 288, "heads": 2, "kv_heads": 1, "head_dim": 64, "rope_freqs": True},
}


@pytest.mark.parametrize("name", MODELS)
def test_the_logits_stay_and_all_widths_are_multiples_of_256(tmp_path: Path, name: str) -> None:
    narrow = write_tiny_llama(tmp_path / "narrow.gguf", seed=3, **MODELS[name])  # type: ignore[arg-type]
    widen(narrow, tmp_path / "wide.gguf")
    before, after = (ReferenceLlama(tmp_path / f"{width}.gguf").logits(TOKENS) for width in ("narrow", "wide"))
    assert np.abs(after - before).max() < 1e-6 * np.abs(before).max()
    for tensor in gguf.GGUFReader(tmp_path / "wide.gguf").tensors:
        assert len(tensor.shape) == 1 or tensor.shape[0] % 256 == 0
        assert len(tensor.shape) == 1 or tensor.tensor_type.name == "F32"


def test_metadata_stays_but_for_the_widths(tmp_path: Path) -> None:
    narrow = write_tiny_llama(tmp_path / "narrow.gguf", hidden=96, heads=6, kv_heads=2, head_dim=16)
    widen(narrow, tmp_path / "wide.gguf")
    before, after = (
        {name: field.contents() for name, field in gguf.GGUFReader(tmp_path / f"{width}.gguf").fields.items()}
        for width in ("narrow", "wide")
    )
    changed = {name for name in before if not name.startswith("GGUF.") and before[name] != after[name]}
    heads = {"llama.attention.head_count", "llama.attention.head_count_kv"}
    epsilon = "llama.attention.layer_norm_rms_epsilon"
    assert changed == {"llama.embedding_length", "llama.feed_forward_length", epsilon, *heads}
    assert (after["llama.attention.head_count"], after["llama.attention.head_count_kv"]) == (48, 16)
    assert after["llama.attention.key_length"] == 16
    assert after[epsilon] == pytest.approx(before[epsilon] * 96 / 256)


def test_the_type_of_the_matrices_can_be_chosen(tmp_path: Path) -> None:
    narrow = write_tiny_llama(tmp_path / "narrow.gguf")
    main([str(narrow), str(tmp_path / "wide.gguf"), "--type", "MXFP4"])
    types = {tensor.tensor_type.name for tensor in gguf.GGUFReader(tmp_path / "wide.gguf").tensors}
    assert types == {"MXFP4", "F32"}
