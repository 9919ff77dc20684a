"""Synthetic models: every weight type, as the `gguf` package and the engine read them."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from benchmarks.random_blocks import TYPES, random_matrix
from benchmarks.synthetic import Shape, main, write_synthetic_llama
from engine.measure.score import score_tokens
from engine.weights.files.gguf import GgufFile

TINY = Shape(layers=2, hidden=256, ffn=512, heads=4, kv_heads=2, vocabulary=300, context=128)


@pytest.mark.parametrize("name", TYPES)
def test_a_random_matrix_of_every_type_has_the_spread_asked_for(name: str) -> None:
    raw = random_matrix(np.random.default_rng(0), name, 64, 512, 0.03)
    values = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name])
    assert values.shape == (64, 512) and np.isfinite(values).all()
    # MXFP4 has powers of two for scales only.
    assert np.std(values) == pytest.approx(0.03, rel=0.5 if name == "MXFP4" else 0.1)
    assert abs(np.mean(values)) < 0.2 * np.std(values)


@pytest.mark.parametrize("name", TYPES)
def test_a_model_of_every_type_is_read_by_the_gguf_package(tmp_path: Path, name: str) -> None:
    write_synthetic_llama(tmp_path / "model.gguf", TINY, type_name=name)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    assert len(tensors) == 3 + 2 * 9
    assert {tensor.tensor_type.name for tensor in tensors.values()} == {name, "F32"}
    down = tensors["blk.1.ffn_down.weight"]
    assert down.shape.tolist() == [512, 256]
    values = gguf.quants.dequantize(down.data, down.tensor_type)
    assert values.shape == (256, 512) and np.isfinite(values).all() and values.std() > 0


def test_the_head_may_have_a_type_of_its_own(tmp_path: Path) -> None:
    sizes = [f"--{name.replace('_', '-')}={getattr(TINY, name)}" for name in Shape.__dataclass_fields__]
    main([str(tmp_path / "model.gguf"), "--type=Q4_0", "--head-type=Q8_0", *sizes])
    types = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    assert (types["output.weight"], types["token_embd.weight"], types["blk.0.attn_q.weight"]) == (
        "Q8_0",
        "Q8_0",
        "Q4_0",
    )


def test_the_engine_runs_a_synthetic_model(tmp_path: Path) -> None:
    write_synthetic_llama(tmp_path / "model.gguf", TINY, type_name="Q4_0")
    with GgufFile.open(tmp_path / "model.gguf") as file:
        logits = score_tokens(file, [5, 299, 40], threads=1)
    assert logits.shape == (3, 300) and np.isfinite(logits).all() and logits.std() > 0


def test_a_width_that_the_type_cannot_hold_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path / "model.gguf"), "--type=Q4_K", "--hidden=96", "--heads=6", "--kv-heads=2"])
    assert "rows of 96 values are no whole number of Q4_K blocks of 256" in capsys.readouterr().err
