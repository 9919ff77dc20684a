"""The sampling that a model's makers ask for: out of GGUF metadata and generation_config.json, checked."""

import json
from pathlib import Path

import pytest

from engine.api.sampling import Sampling
from engine.errors import ModelFileError
from engine.weights.files.gguf import GgufFile
from engine.weights.open_weights import open_weights
from engine.weights.sampling_keys import sampling_defaults
from tests.engine.weights.gguf_bytes import ARCHITECTURE, F32, I32, gguf_bytes, pair
from tests.engine.weights.safetensors_bytes import LLAMA_CONFIG, llama_tensors, write_folder


def gguf_with(path: Path, **values: bytes) -> GgufFile:
    pairs = [pair(f"general.sampling.{key}", I32 if key == "top_k" else F32, value) for key, value in values.items()]
    path.write_bytes(gguf_bytes([ARCHITECTURE, *pairs]))
    return GgufFile.open(path)


def half() -> bytes:
    return b"\0\0\0\x3f"


def test_a_file_that_says_nothing_gets_plain_sampling(tmp_path: Path) -> None:
    assert sampling_defaults(gguf_with(tmp_path / "x.gguf")) == Sampling()
    assert Sampling() == Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0)


def test_gguf_metadata_is_read(tmp_path: Path) -> None:
    top_k = (20).to_bytes(4, "little")
    file = gguf_with(tmp_path / "x.gguf", temp=half(), top_k=top_k, top_p=half(), min_p=half(), penalty_repeat=half())
    expected = Sampling(temperature=0.5, top_k=20, top_p=0.5, min_p=0.5, repetition_penalty=0.5)
    assert sampling_defaults(file) == expected


def test_generation_config_is_read(tmp_path: Path) -> None:
    write_folder(tmp_path, LLAMA_CONFIG, llama_tensors())
    config = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": None, "repetition_penalty": 1.05}
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    expected = Sampling(temperature=0.6, top_k=20, top_p=0.95, repetition_penalty=1.05)
    assert sampling_defaults(open_weights(tmp_path)) == expected


@pytest.mark.parametrize("change", [{"temperature": -1}, {"top_p": 0.0}, {"min_p": 2}, {"top_k": 1.5}, {"top_k": "x"}])
def test_a_default_that_no_request_could_ask_for_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    write_folder(tmp_path, LLAMA_CONFIG, llama_tensors())
    (tmp_path / "generation_config.json").write_text(json.dumps(change))
    with pytest.raises(ModelFileError, match=r"general\.sampling\.|generation_config\.json"):
        sampling_defaults(open_weights(tmp_path))
