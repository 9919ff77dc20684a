"""What a sound GGUF file reads as: metadata, tensors and their bytes, in agreement with the gguf package."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from engine.errors import ModelFileError
from engine.weights.files.gguf import GgufFile
from tests.engine.weights.gguf_bytes import gguf_bytes, sound_file
from tests.tiny.models import write_out, write_tiny_llama

Write = Callable[[bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(content: bytes) -> Path:
        path = tmp_path / "model.gguf"
        path.write_bytes(content)
        return path

    return write_file


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions_are_read(write: Write, version: int) -> None:
    with GgufFile.open(write(sound_file(version))) as file:
        assert file.version == version
        assert file.architecture == "llama"
        assert list(file.tensors) == ["vector", "matrix", "cube"]


def test_scalars_come_back_as_python_values(write: Write) -> None:
    metadata = GgufFile.open(write(sound_file())).metadata
    scalars = {key.removeprefix("a."): value for key, value in metadata.items() if key.startswith("a.")}
    assert scalars == {
        "u8": 255,
        "i8": -1,
        "u16": 65535,
        "i16": -2,
        "u32": 2**32 - 1,
        "i32": -3,
        "f32": 0.5,
        "true": True,
        "text": "zażółć",
        "u64": 2**64 - 1,
        "i64": -4,
        "f64": 0.1,
    }
    assert {type(value) for value in scalars.values()} == {int, float, bool, str}


def test_arrays_come_back_as_numpy_arrays_or_lists_of_strings(write: Write) -> None:
    metadata: dict[str, Any] = GgufFile.open(write(sound_file())).metadata
    assert metadata["b.numbers"].dtype == np.int32
    assert metadata["b.numbers"].tolist() == [1, -2, 3]
    assert metadata["b.flags"].dtype == np.bool_
    assert metadata["b.flags"].tolist() == [False, True]
    assert metadata["b.nested"][0].tolist() == [1, 2]
    assert metadata["b.nested"][1] == ["x"]
    assert metadata["b.empty"].size == 0


def test_bytes_that_are_not_utf8_survive_in_strings(write: Write) -> None:
    strings: Any = GgufFile.open(write(sound_file())).metadata["b.strings"]
    assert [text.encode("utf-8", "surrogateescape") for text in strings] == [b"a", b"", b"\xff\xfe"]


def test_shapes_are_in_numpy_order_and_rows_are_flattened(write: Write) -> None:
    file = GgufFile.open(write(sound_file()))
    assert {name: (info.shape, info.type, info.nbytes) for name, info in file.tensors.items()} == {
        "vector": ((5,), "F32", 20),
        "matrix": ((3, 32), "Q4_0", 54),
        "cube": ((2, 3, 4), "F16", 48),
    }
    assert file.raw("vector").shape == (1, 20)
    assert file.raw("matrix").shape == (3, 18)
    assert file.raw("cube").shape == (6, 8)
    assert file.raw("matrix").tobytes() == bytes(range(32, 86))
    assert file.raw("cube").tobytes() == bytes(range(96, 144))


def test_tensor_bytes_cannot_be_written(write: Write) -> None:
    with pytest.raises(ValueError, match="read-only"):
        GgufFile.open(write(sound_file())).raw("vector")[0, 0] = 1


def test_rows_are_read_from_the_file(write: Write) -> None:
    with GgufFile.open(write(sound_file())) as file:
        assert np.array_equal(file.rows("cube", 2, 3), file.raw("cube")[2:5])
        assert np.array_equal(file.rows("vector", 0, 1), file.raw("vector"))


def test_reading_a_file_that_was_cut_meanwhile_is_an_error(write: Write) -> None:
    """By a mapping it would end the process."""
    path = write(sound_file())
    with GgufFile.open(path) as file:
        os.truncate(path, file.tensors["cube"].offset + 10)
        assert file.rows("matrix", 0, 3).nbytes == 54
        with pytest.raises(ModelFileError, match=r"was cut short while it was in use"):
            file.rows("cube", 0, 6)


def test_a_view_outlives_closing_the_file(write: Write) -> None:
    with GgufFile.open(write(sound_file())) as file:
        view = file.raw("cube")
    assert view.tobytes() == bytes(range(96, 144))


def test_a_closed_file_without_views_reads_no_more(write: Write) -> None:
    file = GgufFile.open(write(sound_file()))
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.raw("cube")


def test_the_last_tensor_needs_no_padding_behind_it(write: Write) -> None:
    assert len(sound_file()) % 32 != 0
    assert "cube" in GgufFile.open(write(sound_file())).tensors


def test_a_missing_architecture_is_named(write: Write) -> None:
    file = GgufFile.open(write(gguf_bytes(pairs=())))
    with pytest.raises(ModelFileError, match=r"general\.architecture"):
        _ = file.architecture


@pytest.mark.parametrize("types", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_tensors_equal_those_that_the_gguf_package_reads(tmp_path: Path, types: str) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf", types=types, layers=1, tied=False, rope_freqs=True)
    expected = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    with GgufFile.open(path) as file:
        assert file.tensors.keys() == expected.keys()
        for name, info in file.tensors.items():
            reference = expected[name]
            assert info.shape == tuple(reference.shape.tolist()[::-1])
            assert (info.type, info.offset, info.nbytes) == (
                reference.tensor_type.name,
                reference.data_offset,
                reference.n_bytes,
            )
            assert file.raw(name).tobytes() == reference.data.tobytes()


def test_metadata_equals_what_the_gguf_package_reads(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf", layers=1)
    fields = gguf.GGUFReader(path).fields
    metadata = GgufFile.open(path).metadata
    assert metadata.keys() == {key for key in fields if not key.startswith("GGUF.")}
    for key, value in metadata.items():
        plain = value.tolist() if isinstance(value, np.ndarray) else value
        assert plain == fields[key].contents()


def test_the_alignment_of_the_file_is_obeyed(tmp_path: Path) -> None:
    path = tmp_path / "aligned.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(4096)
    for name in ("one", "two"):
        writer.add_tensor(name, np.full(3, ord(name[0]), dtype=np.float32))
    write_out(writer)
    file = GgufFile.open(path)
    assert [info.offset % 4096 for info in file.tensors.values()] == [0, 0]
    assert file.raw("two").view(np.float32).tolist() == [[ord("t")] * 3]
