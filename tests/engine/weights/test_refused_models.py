"""A qwen35moe model that cannot be run: the tensor that is missing, misshapen or of an unknown type is named in a line.

The same of one file, of a split one and of a folder of safetensors.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.api.config import EngineConfig
from engine.errors import ModelError, ModelFileError, ModelNotFoundError, UnsupportedModelError
from engine.loading.load_runner import load_runner
from engine.weights.files.file_view import FileView
from engine.weights.files.weights_file import TensorInfo, WeightsFile
from engine.weights.open_weights import open_weights
from tests.engine.runners import GOLDEN
from tests.engine.weights.safetensors_bytes import stored_tensors, write_folder, write_shards
from tests.gguf_parts import write_part
from tests.tiny.qwen35 import write_tiny_qwen35

FOLDER = GOLDEN / "qwen3_5_moe"
QKV = "blk.0.attn_qkv.weight"
STORED_QKV = "model.language_model.layers.0.linear_attn.in_proj_qkv.weight"
OPTIONAL = {"output.weight"}  # without it, the embeddings are the head
UNKNOWN = "IQ2_XXS"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_qwen35(tmp_path_factory.mktemp("tiny") / "tiny.gguf", layers=2)


def refusal(file: WeightsFile, error: type[ModelError]) -> str:
    """The line with which a model is refused."""
    with pytest.raises(error) as caught:
        load_runner(file, EngineConfig(threads=1, lanes=1), lambda stage, share: None)
    message = str(caught.value)
    assert "\n" not in message and str(file.path.parent) in message and message.endswith(".")
    return message


def refusal_at(path: Path, error: type[ModelError]) -> str:
    """The same where opening it may fail already."""
    with pytest.raises(error) as caught, open_weights(path) as file:
        load_runner(file, EngineConfig(threads=1, lanes=1), lambda stage, share: None)
    message = str(caught.value)
    assert "\n" not in message and str(path.parent) in message and message.endswith(".")
    return message


def every(
    file: WeightsFile, change: Callable[[TensorInfo], TensorInfo | None], error: type[ModelError]
) -> dict[str, str]:
    """By tensor, how the model is refused whose tensor was changed, or, if None, taken away."""
    messages = {}
    for name, info in file.tensors.items():
        changed = change(info)
        others = {other: info for other, info in file.tensors.items() if other != name}
        if changed is not None or name not in OPTIONAL:
            tensors = others if changed is None else others | {name: changed}
            messages[name] = refusal(FileView(file, tensors=tensors), error)
    return messages


def test_whichever_tensor_is_missing_is_named(whole: Path) -> None:
    with open_weights(whole) as file:
        messages = every(file, lambda info: None, ModelFileError)
        assert messages.keys() == file.tensors.keys() - OPTIONAL
    for name, message in messages.items():
        assert message.startswith(f"{whole} is incomplete: it has no ") and name in message


def test_whichever_tensor_has_a_wrong_shape_is_named_with_the_right_one(whole: Path) -> None:
    def longer(info: TensorInfo) -> TensorInfo:
        return replace(info, shape=(*info.shape[:-1], 2 * info.shape[-1]))

    with open_weights(whole) as file:
        shapes = {name: info.shape for name, info in file.tensors.items()}
        for name, message in every(file, longer, ModelFileError).items():
            *rows, columns = shapes[name]
            expected = ", ".join(map(str, shapes[name]))  # a vector may be a matrix of one row
            assert message.startswith(f"{whole} is broken: {name} has shape {(*rows, 2 * columns)}, not (")
            assert expected in message.rpartition(" not ")[2]


def test_whichever_tensor_is_of_an_unknown_type_is_named_with_those_that_can_be_run(whole: Path) -> None:
    with open_weights(whole) as file:
        for name, message in every(file, lambda info: replace(info, type=UNKNOWN), UnsupportedModelError).items():
            assert f"{name} is of type {UNKNOWN}, which this version cannot run; use a file in one of F32" in message


def test_what_a_split_model_lacks_is_named_by_its_part(whole: Path, tmp_path: Path) -> None:
    def split(name: str, wanted: Callable[[str], bool] = lambda name: True) -> list[Path]:
        write_part(whole, tmp_path / f"{name}.gguf", wanted, tensors_a_file=20)
        return sorted(tmp_path.glob(f"{name}-*.gguf"))

    first, second, third = split("whole")
    second.unlink()
    assert f"of which {second.name} is missing" in refusal_at(first, ModelNotFoundError)
    assert "has no tensor blk.0.attn_qkv.weight" in refusal_at(split("less", QKV.__ne__)[-1], ModelFileError)
    fewer = split("fewer", lambda name: not name.startswith("blk.2."))
    third.replace(fewer[-1])
    assert f"{fewer[-1].name} is not what its name says" in refusal_at(fewer[0], ModelFileError)
    with open_weights(split("sound")[0]) as file:
        name = list(file.tensors)[-1]
        part = sorted(tmp_path.glob("sound-*.gguf"))[-1]
        for change, error in (({"shape": (3,)}, ModelFileError), ({"type": UNKNOWN}, UnsupportedModelError)):
            changed = replace(file.tensors[name], **change)
            message = refusal(FileView(file, tensors={**file.tensors, name: changed}), error)
            assert message.startswith(str(part)) and name in message


Tensors = dict[str, NDArray[np.float32]]


def folder_with(folder: Path, change: Callable[[Tensors], object], **config: object) -> Path:
    """The golden folder with other tensors, or another configuration."""
    tensors = stored_tensors(FOLDER / "model.safetensors")
    change(tensors)
    return write_folder(folder, json.loads((FOLDER / "config.json").read_text()) | config, tensors)


def test_what_a_folder_lacks_is_named(tmp_path: Path) -> None:
    def cut(tensors: Tensors) -> None:
        tensors["mtp.fc.weight"] = tensors["mtp.fc.weight"][:-1]

    def cut_values(tensors: Tensors) -> None:
        tensors[STORED_QKV] = tensors[STORED_QKV][:-1]

    def as_bytes(tensors: Tensors) -> None:
        tensors[STORED_QKV] = tensors[STORED_QKV].astype(np.int8)

    missing = folder_with(tmp_path / "missing", lambda tensors: tensors.pop(STORED_QKV))
    assert f"{missing} is incomplete: it has no tensor {QKV}" in refusal_at(missing, ModelFileError)
    message = refusal_at(folder_with(tmp_path / "short", cut), ModelFileError)
    assert "blk.8.nextn.eh_proj.weight has shape (63, 128), not (64, 128)" in message
    assert QKV in refusal_at(folder_with(tmp_path / "values", cut_values), ModelFileError)
    assert f"{STORED_QKV} is of the type I8" in refusal_at(
        folder_with(tmp_path / "i8", as_bytes), UnsupportedModelError
    )
    quantized = folder_with(tmp_path / "fp8", lambda tensors: None, quantization_config={"quant_method": "fp8"})
    assert "is quantized by fp8" in refusal_at(quantized, UnsupportedModelError)


def test_a_shard_that_is_missing_is_named(tmp_path: Path) -> None:
    tensors = list(stored_tensors(FOLDER / "model.safetensors").items())
    write_shards(tmp_path, {"a.safetensors": dict(tensors[::2]), "b.safetensors": dict(tensors[1::2])})
    (tmp_path / "config.json").write_text((FOLDER / "config.json").read_text())
    (tmp_path / "b.safetensors").unlink()
    assert "b.safetensors" in refusal_at(tmp_path, ModelNotFoundError)


def test_a_mixture_that_does_not_tell_of_its_shared_experts_is_refused(tmp_path: Path) -> None:
    """They would be left out without a word."""
    tiny = write_tiny_qwen35(tmp_path / "whole.gguf", layers=2)
    silent = write_part(tiny, tmp_path / "x.gguf", lambda name: True, {"expert_shared_feed_forward_length": None})
    assert "'qwen35moe.expert_shared_feed_forward_length'" in refusal_at(silent, ModelFileError)
