"""GGUF files that we write: read by the gguf package, equal to what they were made of, and never half there."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.errors import ModelFileError, OctavoError
from engine.text.tokenizer import Tokenizer
from engine.weights.convert import convert
from engine.weights.files.gguf import GgufFile
from engine.weights.files.weights_file import WeightsFile
from engine.weights.open_weights import open_weights
from engine.weights.quantized_file import quantized
from tests.engine.runners import GOLDEN
from tests.engine.text.tokenizers.tokenizer_files import both, byte_fallback, byte_level
from tests.engine.weights.gguf_bytes import sound_file
from tests.engine.weights.safetensors_bytes import LLAMA_CONFIG, llama_tensors, write_folder
from tests.tiny.models import write_tiny_llama


def write(source: WeightsFile, target: Path) -> list[float]:
    shares: list[float] = []
    convert(source, target, 2, shares.append)
    return shares


def test_a_folder_becomes_a_file_of_the_same_tensors_and_metadata(tmp_path: Path) -> None:
    target = tmp_path / "out.gguf"
    with open_weights(GOLDEN / "qwen3_5_moe") as folder:
        shares = write(folder, target)
        assert shares == sorted(shares) and shares[-1] == 1.0
        reader = gguf.GGUFReader(target)
        assert [tensor.name for tensor in reader.tensors] == list(folder.tensors)
        for tensor in reader.tensors:
            assert tensor.tensor_type.name == folder.tensors[tensor.name].type
            assert np.array_equal(
                np.asarray(tensor.data).reshape(-1).view(np.uint8), folder.raw(tensor.name).reshape(-1)
            )
        for key, value in folder.metadata.items():
            assert np.all(reader.fields[key].contents() == value), key
        assert reader.fields["general.file_type"].contents() == 0
        assert reader.fields["tokenizer.ggml.model"].contents() == "none"


def test_every_kind_of_value_survives(tmp_path: Path) -> None:
    source, target = tmp_path / "in.gguf", tmp_path / "out.gguf"
    source.write_bytes(sound_file())
    with GgufFile.open(source) as before:
        write(before, target)
        with GgufFile.open(target) as after:
            assert after.metadata.keys() - before.metadata.keys() == {
                "tokenizer.ggml.model",
                "general.quantization_version",
                "general.file_type",
            }
            for key, value in before.metadata.items():
                if isinstance(value, float):
                    assert after.metadata[key] == pytest.approx(value)
                elif key != "b.nested":
                    assert np.all(np.asarray(after.metadata[key]) == np.asarray(value)), key
            assert str(after.metadata["b.nested"]) == str(before.metadata["b.nested"])
            assert all(np.array_equal(after.raw(name), before.raw(name)) for name in before.tensors)


def test_a_quantized_model_is_written_as_it_is_shown(tmp_path: Path) -> None:
    tiny = write_tiny_llama(tmp_path / "tiny.gguf", hidden=256, heads=4, kv_heads=2, ffn=256)
    with quantized(GgufFile.open(tiny), "q4_k") as shown:
        write(shown, tmp_path / "out.gguf")
        with GgufFile.open(tmp_path / "out.gguf") as file:
            assert file.metadata["general.file_type"] == 14
            assert file.metadata["tokenizer.ggml.tokens"] == shown.metadata["tokenizer.ggml.tokens"]
            assert {name: info.type for name, info in file.tensors.items()} == {
                name: info.type for name, info in shown.tensors.items()
            }
            assert all(np.array_equal(file.raw(name), shown.raw(name)) for name in file.tensors)


def test_sampling_that_a_folder_asks_for_is_written_as_other_readers_expect_it(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder", LLAMA_CONFIG, llama_tensors())
    asked = {"temperature": 1, "top_k": 20, "top_p": 0.95, "min_p": None, "do_sample": True}
    (folder / "generation_config.json").write_text(json.dumps(asked))
    with open_weights(folder) as shown:
        write(shown, tmp_path / "out.gguf")
    fields = gguf.GGUFReader(tmp_path / "out.gguf").fields
    kinds = {key: fields[key].types for key in fields if key.startswith("general.sampling.")}
    number, count = [gguf.GGUFValueType.FLOAT32], [gguf.GGUFValueType.UINT32]
    assert kinds == {
        "general.sampling.temp": number,
        "general.sampling.top_k": count,
        "general.sampling.top_p": number,
    }


ADDED = {"<|s|>": {"special": True, "rstrip": True}, "<u>": {"lstrip": True}, "<n>": {"normalized": True}}
TOKENIZERS = {
    "bytes as letters": byte_level(ADDED, normalizer={"type": "NFC"}),
    "bytes to fall back to": byte_fallback(
        ADDED,
        normalizer={"type": "NFKC"},
        pre_tokenizer={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True},
    ),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_file_made_of_a_folder_gives_the_folders_token_ids(tmp_path: Path, name: str) -> None:
    folder = write_folder(tmp_path / "folder", LLAMA_CONFIG, llama_tensors())
    library, own = both(TOKENIZERS[name], folder)
    with open_weights(folder) as shown:
        write(shown, tmp_path / "out.gguf")
    with GgufFile.open(tmp_path / "out.gguf") as file:
        written = Tokenizer.from_metadata(file.metadata)
    for text in ("ab cab", "e\u0301 \ufb01 <|s|>  ab <u>\u00e9<n> a", " a<|s|> a <n>  b", "\u2581 \uff21"):
        expected = library.encode(text).ids
        assert own.encode(text, parse_special=True) == written.encode(text, parse_special=True) == expected


@pytest.mark.parametrize("value", [{"temperature": {"a": 1}}, {"top_k": 10**30}, {"top_p": "x"}, {"min_p": True}])
def test_sampling_that_is_no_number_is_refused_by_the_name_of_its_file(
    tmp_path: Path, value: dict[str, object]
) -> None:
    folder = write_folder(tmp_path, LLAMA_CONFIG, llama_tensors())
    (folder / "generation_config.json").write_text(json.dumps(value))
    with pytest.raises(ModelFileError, match=rf"generation_config\.json is broken: .*{next(iter(value))}"):
        open_weights(folder)


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    tiny = write_tiny_llama(tmp_path / "tiny.gguf")
    content = tiny.read_bytes()
    with GgufFile.open(tiny) as file, pytest.raises(OctavoError, match="is there already"):
        write(file, tiny)
    assert tiny.read_bytes() == content


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tiny = write_tiny_llama(tmp_path / "tiny.gguf")
    with GgufFile.open(tiny) as file, pytest.raises(OctavoError, match=r"out\.gguf cannot be written"):
        write(file, tmp_path / "missing" / "out.gguf")


def test_a_fault_leaves_nothing_behind(tmp_path: Path) -> None:
    tiny = write_tiny_llama(tmp_path / "tiny.gguf")
    with GgufFile.open(tiny) as file:
        with tiny.open("r+b") as cut:
            cut.truncate(tiny.stat().st_size - 4096)
        with pytest.raises(ModelFileError, match="cut short"):
            write(file, tmp_path / "out.gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.gguf"]
