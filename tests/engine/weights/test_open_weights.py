"""Split GGUF models read as one, and the sentences for parts that are missing or do not belong together."""

from pathlib import Path

import numpy as np
import pytest

from engine.errors import ModelFileError, ModelNotFoundError
from engine.weights.open_weights import is_later_part, model_stem, open_weights
from tests.engine.weights.gguf_bytes import ARCHITECTURE, I32, U16, gguf_bytes, pair, tensor


def write_part(folder: Path, number: int, count: int, names: str, *, total: int = 3, said: int | None = None) -> Path:
    """A part with tensors of four floats, filled with its number; `said` is what its metadata calls it."""
    pairs = [
        ARCHITECTURE,
        pair("split.count", U16, count.to_bytes(2, "little")),
        pair("split.no", U16, (number if said is None else said).to_bytes(2, "little")),
        pair("split.tensors.count", I32, total.to_bytes(4, "little")),
        pair("part.number", U16, number.to_bytes(2, "little")),
    ]
    tensors = [tensor(name, [4], 0, 32 * place) for place, name in enumerate(names)]
    data = np.full(8 * len(names), number, np.float32).tobytes()
    path = folder / f"big-{number + 1:05}-of-{count:05}.gguf"
    path.write_bytes(gguf_bytes(pairs, tensors, data))
    return path


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    return [write_part(tmp_path, 0, 2, "ab"), write_part(tmp_path, 1, 2, "c")]


@pytest.mark.parametrize("given", [0, 1])
def test_any_part_opens_the_whole_model(parts: list[Path], given: int) -> None:
    with open_weights(parts[given]) as file:
        assert file.path == parts[0]
        assert file.architecture == "llama"
        assert file.metadata["part.number"] == 0
        assert list(file.tensors) == ["a", "b", "c"]
        assert file.nbytes == sum(path.stat().st_size for path in parts)
        assert [file.raw(name).view(np.float32).tolist() for name in "abc"] == [[[number] * 4] for number in (0, 0, 1)]
        assert file.rows("c", 0, 1).view(np.float32)[0, 0] == 1
        file.check_size()


def test_a_missing_part_is_named(parts: list[Path]) -> None:
    parts[1].unlink()
    with pytest.raises(ModelNotFoundError, match=r"one of 2 parts .* of which big-00002-of-00002\.gguf is missing"):
        open_weights(parts[0])


def test_a_part_under_another_name_is_refused(parts: list[Path]) -> None:
    other = parts[0].rename(parts[0].with_name("other.gguf"))
    with pytest.raises(ModelFileError, match=r"does not end in -00001-of-00002\.gguf"):
        open_weights(other)


def test_a_part_that_says_it_is_another_is_refused(parts: list[Path]) -> None:
    write_part(parts[0].parent, 1, 2, "c", said=0)
    with pytest.raises(ModelFileError, match="not part 2 of 2"):
        open_weights(parts[0])


def test_a_part_that_is_no_part_is_refused(parts: list[Path]) -> None:
    parts[1].write_bytes(gguf_bytes())
    with pytest.raises(ModelFileError, match="not part 2 of 2"):
        open_weights(parts[0])


def test_a_tensor_that_two_parts_hold_is_refused(parts: list[Path]) -> None:
    write_part(parts[0].parent, 1, 2, "a")
    with pytest.raises(ModelFileError, match="both hold the tensor 'a'"):
        open_weights(parts[0])


def test_parts_must_hold_the_number_of_tensors_that_the_first_says(tmp_path: Path) -> None:
    first = write_part(tmp_path, 0, 2, "a", total=9)
    write_part(tmp_path, 1, 2, "b")
    with pytest.raises(ModelFileError, match="hold 2 tensors, not 9"):
        open_weights(first)


def test_a_part_that_was_cut_while_in_use_is_noticed(parts: list[Path]) -> None:
    file = open_weights(parts[0])
    with parts[1].open("r+b") as part:
        part.truncate(64)
    with pytest.raises(ModelFileError, match=r"big-00002-of-00002\.gguf was cut short"):
        file.check_size()


def test_a_models_name_is_that_of_its_parts() -> None:
    assert model_stem(Path("x/big-Q4_K-00002-of-00003.gguf")) == "big-Q4_K"
    assert model_stem(Path("x/one.Q8_0.gguf")) == "one.Q8_0"
    assert is_later_part(Path("a-00002-of-00003.gguf"))
    assert not is_later_part(Path("a-00001-of-00003.gguf")) and not is_later_part(Path("a.gguf"))
