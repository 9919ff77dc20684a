"""Folders of safetensors shown as GGUF: the golden files' tensors to the bit, and a sentence for what is wrong."""

import json
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from engine.errors import ModelError, ModelFileError, ModelNotFoundError, UnsupportedModelError
from engine.weights.load import WeightLoader
from engine.weights.open_weights import open_weights
from engine.weights.safetensors_folder import SafetensorsFolder
from tests.engine.runners import GOLDEN
from tests.engine.weights.safetensors_bytes import (
    LLAMA_CONFIG,
    llama_tensors,
    safetensors_bytes,
    stored_tensors,
    to_bf16,
    write_folder,
    write_shards,
)

Q_PROJ = "model.layers.0.self_attn.q_proj.weight"
GOLDEN_FOLDERS = sorted(path.parent.name for path in GOLDEN.glob("*/model.safetensors"))


@pytest.mark.parametrize("name", [name for name in GOLDEN_FOLDERS if (GOLDEN / name / "model.gguf").exists()])
def test_tensors_and_metadata_are_those_of_the_golden_file(name: str) -> None:
    reader = gguf.GGUFReader(GOLDEN / name / "model.gguf")
    with SafetensorsFolder(GOLDEN / name) as folder:
        assert set(folder.tensors) == {tensor.name for tensor in reader.tensors}
        for tensor in reader.tensors:
            expected = np.asarray(tensor.data, np.float32)
            info = folder.tensors[tensor.name]
            assert (info.shape, info.type, info.nbytes) == (expected.shape, "F32", expected.nbytes)
            assert np.array_equal(folder.raw(tensor.name).view(np.float32).reshape(expected.shape), expected)
        for key, field in reader.fields.items():
            if key.startswith(f"{folder.architecture}."):
                assert np.all(folder.metadata[key] == field.contents()), key


@pytest.mark.parametrize("name", GOLDEN_FOLDERS)
def test_rows_are_those_of_the_whole(name: str) -> None:
    with SafetensorsFolder(GOLDEN / name) as folder:
        for tensor in folder.tensors:
            whole = folder.raw(tensor)
            first, last = len(whole) // 3, len(whole)
            assert np.array_equal(folder.rows(tensor, first, last - first), whole[first:last]), tensor


def test_every_family_has_a_golden_folder() -> None:
    architectures = set()
    for name in GOLDEN_FOLDERS:
        with SafetensorsFolder(GOLDEN / name) as folder:
            architectures.add(folder.architecture)
    assert architectures == {"llama", "qwen2", "qwen3", "qwen3moe", "gemma3", "qwen35moe"}


def qwen3moe_with(rename: Callable[[dict[str, NDArray[np.float32]]], None], folder: Path) -> SafetensorsFolder:
    """The golden mixture, its tensors changed."""
    source = GOLDEN / "qwen3_moe"
    tensors = stored_tensors(source / "model.safetensors")
    rename(tensors)
    return SafetensorsFolder(write_folder(folder, json.loads((source / "config.json").read_text()), tensors))


def one_by_one(tensors: dict[str, NDArray[np.float32]]) -> None:
    """Experts as transformers 4 writes them."""
    for name in [name for name in tensors if ".experts." in name]:
        merged = tensors.pop(name)
        prefix = name.rsplit(".", 1)[0]
        for expert, values in enumerate(merged):
            if name.endswith("down_proj"):
                tensors[f"{prefix}.{expert}.down_proj.weight"] = values
            else:
                gate, up = np.split(values, 2)
                tensors[f"{prefix}.{expert}.gate_proj.weight"] = gate
                tensors[f"{prefix}.{expert}.up_proj.weight"] = up


def test_experts_one_by_one_are_the_same_as_merged_ones(tmp_path: Path) -> None:
    single, merged = qwen3moe_with(one_by_one, tmp_path / "single"), SafetensorsFolder(GOLDEN / "qwen3_moe")
    assert single.tensors == merged.tensors
    for name, info in merged.tensors.items():
        assert np.array_equal(single.raw(name), merged.raw(name))
        if "exps" in name:
            inner = slice(info.shape[1] - 3, info.shape[1] + 3)  # over the border of two experts
            assert np.array_equal(single.rows(name, inner.start, 6), merged.raw(name)[inner])


def test_an_expert_that_is_missing_is_named(tmp_path: Path) -> None:
    def without_one(tensors: dict[str, NDArray[np.float32]]) -> None:
        one_by_one(tensors)
        del tensors["model.layers.1.mlp.experts.5.up_proj.weight"]

    with pytest.raises(ModelFileError, match=r"of the 8 of blk\.1\.ffn_up_exps\.weight, expert 5 is missing"):
        qwen3moe_with(without_one, tmp_path / "x")


def test_experts_of_different_shapes_are_refused(tmp_path: Path) -> None:
    def one_is_short(tensors: dict[str, NDArray[np.float32]]) -> None:
        one_by_one(tensors)
        name = "model.layers.0.mlp.experts.3.down_proj.weight"
        tensors[name] = tensors[name][:-1]

    with pytest.raises(ModelFileError, match=r"experts\.3\.down_proj\.weight is of another shape or type"):
        qwen3moe_with(one_is_short, tmp_path / "x")


def test_halves_are_kept_and_vectors_widened(tmp_path: Path) -> None:
    tensors = llama_tensors()
    stored = {
        name: to_bf16(values) if "norm" in name else values.astype(np.float16) for name, values in tensors.items()
    }
    with SafetensorsFolder(write_folder(tmp_path, LLAMA_CONFIG, stored)) as folder:
        assert {info.type for info in folder.tensors.values()} == {"F16", "F32"}
        found = folder.raw("output_norm.weight").view(np.float32)[0]
        assert np.array_equal(found.view(np.uint32), stored["model.norm.weight"].astype(np.uint32) << 16)
        assert np.array_equal(
            folder.raw("token_embd.weight").view(np.float16), tensors["model.embed_tokens.weight"].astype(np.float16)
        )
        # Row 1 of a head of 16 is its row 8: a rotary pair stands together.
        assert np.array_equal(folder.rows("blk.0.attn_q.weight", 1, 1), stored[Q_PROJ][8:9].view(np.uint8))


def test_shards_are_one_model(tmp_path: Path) -> None:
    tensors = llama_tensors()
    names = sorted(tensors)
    write_shards(
        tmp_path,
        {"a.safetensors": {n: tensors[n] for n in names[::2]}, "b.safetensors": {n: tensors[n] for n in names[1::2]}},
    )
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_CONFIG))
    whole = SafetensorsFolder(write_folder(tmp_path / "whole", LLAMA_CONFIG, tensors))
    with open_weights(tmp_path) as sharded:
        assert sharded.tensors == whole.tensors
        assert all(np.array_equal(sharded.raw(name), whole.raw(name)) for name in whole.tensors)


def with_config(**changes: object) -> dict[str, object]:
    return {key: value for key, value in (LLAMA_CONFIG | changes).items() if value != "absent"}


WRONG_CONFIGS: dict[str, tuple[dict[str, object], str]] = {
    "no model type": (with_config(model_type="absent"), "has no metadata key 'model_type'"),
    "an unknown model type": (with_config(model_type="mamba"), "of the model type 'mamba'"),
    "no hidden size": (with_config(hidden_size="absent"), "no metadata key 'hidden_size'"),
    "heads of text": (with_config(num_attention_heads="two"), "'num_attention_heads' is not an integer"),
    "no heads": (with_config(num_attention_heads=0), "not from 1"),
    "more heads than rows": (with_config(num_attention_heads=4, head_dim=16), r"attn_q\.weight has 32 rows"),
    "another activation": (with_config(hidden_act="gelu"), "the activation 'gelu'"),
    "quantized weights": (with_config(quantization_config={"quant_method": "gptq"}), "is quantized by gptq"),
    "another scaling of positions": (
        with_config(rope_scaling={"type": "longrope", "factor": 2.0}),
        "scales its positions by 'longrope'",
    ),
    "scaling that is no object": (with_config(rope_scaling=8), "rope_scaling is no object"),
    "llama3 scaling without factors": (with_config(rope_scaling={"rope_type": "llama3"}), "no metadata key 'factor'"),
    "a head that is not there": (with_config(tie_word_embeddings=False), r"no tensor is lm_head\.weight"),
    "more than all of a head that turns": (
        with_config(partial_rotary_factor=1e308),
        "'partial_rotary_factor' is not from 0",
    ),
    "yarn without end": (with_config(rope_scaling={"type": "yarn", "factor": 1e308}), "yarn factor is 1e[+]308"),
    "a number of many digits": (with_config(rope_theta=10**400), "'rope_theta' is not a finite number"),
    "a text model of text": (with_config(text_config="llama"), "text_config is no object"),
}


@pytest.mark.parametrize("name", WRONG_CONFIGS)
def test_a_config_that_does_not_fit_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    config, message = WRONG_CONFIGS[name]
    with pytest.raises(ModelError, match=message) as caught:
        SafetensorsFolder(write_folder(tmp_path, config, llama_tensors()))
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_tensor_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    tensors = llama_tensors() | {"model.layers.0.self_attn.q_norm.weight": np.zeros(32, np.float32)}
    with pytest.raises(UnsupportedModelError, match=r"the tensor model\.layers\.0\.self_attn\.q_norm\.weight"):
        SafetensorsFolder(write_folder(tmp_path, LLAMA_CONFIG, tensors))


def test_towers_of_other_senses_and_tables_are_passed_over(tmp_path: Path) -> None:
    more = {name: np.zeros(3, np.int8) for name in ("vision_tower.x", "model.layers.0.self_attn.rotary_emb.inv_freq")}
    prefixed = {name.replace("model.", "model.language_model.", 1): values for name, values in llama_tensors().items()}
    folder = SafetensorsFolder(write_folder(tmp_path, LLAMA_CONFIG, {**prefixed, **more}))
    assert "blk.0.attn_q.weight" in folder.tensors and len(folder.tensors) == len(prefixed)


def test_a_type_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    tensors = {name: values.astype(np.int8) if name == Q_PROJ else values for name, values in llama_tensors().items()}
    with pytest.raises(UnsupportedModelError, match=r"q_proj\.weight is of the type I8, which this version cannot run"):
        SafetensorsFolder(write_folder(tmp_path, LLAMA_CONFIG, tensors))


@pytest.mark.parametrize("shape", [(), (0, 32)])
def test_a_tensor_without_rows_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    tensors = llama_tensors() | {"model.norm.weight": np.zeros(shape, np.float32)}
    with pytest.raises(ModelFileError, match=r"model\.norm\.weight has the shape"):
        SafetensorsFolder(write_folder(tmp_path, LLAMA_CONFIG, tensors))


def test_a_missing_tensor_and_a_wrong_shape_are_named_when_they_are_loaded(tmp_path: Path) -> None:
    tensors = llama_tensors()
    del tensors["model.layers.0.mlp.up_proj.weight"]
    with (
        SafetensorsFolder(write_folder(tmp_path, LLAMA_CONFIG, tensors)) as folder,
        WeightLoader(folder, activations="int8", progress=lambda done: None) as weights,
    ):
        with pytest.raises(ModelFileError, match=r"it has no tensor blk\.0\.ffn_up\.weight"):
            weights.matrix("blk.0.ffn_up.weight", 48, 32)
        with pytest.raises(ModelFileError, match=r"blk\.0\.ffn_gate\.weight has shape \(48, 32\), not \(64, 32\)"):
            weights.matrix("blk.0.ffn_gate.weight", 64, 32)


def test_a_folder_without_config_says_so(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(llama_tensors()))
    with pytest.raises(ModelNotFoundError, match=r"no file .*config\.json, which the model needs"):
        SafetensorsFolder(tmp_path)


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[1]", b"[" * 100_000, b" " * (5 << 20)])
def test_a_broken_config_is_refused_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    write_folder(tmp_path, LLAMA_CONFIG, llama_tensors())
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"config\.json (is broken|has \d+ bytes)") as caught:
        SafetensorsFolder(tmp_path)
    assert "\n" not in str(caught.value)
