"""Logits of golden folders of safetensors against those of transformers: float32, within 1e-4 of the largest."""

import json

import numpy as np
import pytest

from engine.families.registry import FAMILIES
from engine.run.runner_protocol import SequenceRows
from tests.engine.runners import GOLDEN, blocks_for, loaded

ARCHITECTURES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "gemma3_text": "gemma3",
    "qwen3_5_moe": "qwen35moe",
}
FOLDERS = {
    path.parent.name: ARCHITECTURES[json.loads((path.parent / "config.json").read_text())["model_type"]]
    for path in sorted(GOLDEN.glob("*/model.safetensors"))
}


@pytest.mark.parametrize("name", [name for name, architecture in FOLDERS.items() if architecture in FAMILIES])
def test_a_folder_gives_the_golden_logits(name: str) -> None:
    with np.load(GOLDEN / name / "logits.npz") as arrays:
        ids, expected = arrays["ids"].tolist(), arrays["logits_full"]
    with loaded(GOLDEN / name, activations="f32", kv_type="f32") as runner:
        tables = (list(range(blocks_for(len(ids)))),) * len(runner.groups)
        logits = runner.run([SequenceRows(ids, 0, tables, len(ids))])
    assert logits.shape == expected.shape
    assert np.abs(logits - expected).max() < 1e-4 * np.abs(expected).max()
