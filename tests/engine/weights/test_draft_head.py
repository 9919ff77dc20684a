"""Draft heads in files of their own: found beside the model, refused in a sentence, and left out where none is used."""

import shutil
from pathlib import Path

import pytest

from engine.errors import ModelError, ModelFileError, ModelNotFoundError
from engine.families.family import FamilyConfig
from engine.families.registry import family_of
from engine.loading.fingerprint import content_digest
from engine.weights.digest import tensor_digests
from engine.weights.draft_head import open_drafting, open_trunk, with_draft, without_draft
from engine.weights.files.weights_file import WeightsFile
from engine.weights.load import WeightLoader
from engine.weights.open_weights import open_weights
from kernels.attention.kv_cache import F16
from tests.gguf_parts import part_draft, write_part
from tests.tiny.models import write_tiny_llama
from tests.tiny.qwen35 import write_tiny_qwen35

LAYERS = 4
DRAFT = f"blk.{LAYERS}."


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return write_tiny_qwen35(tmp_path / "whole.gguf")


@pytest.fixture
def parts(whole: Path, tmp_path: Path) -> tuple[Path, Path]:
    folder = tmp_path / "parts"
    folder.mkdir()
    return part_draft(whole, folder, LAYERS)


def config_of(file: WeightsFile) -> FamilyConfig:
    config: FamilyConfig = family_of(file).read_config(file)
    return config


def identity(file: WeightsFile) -> str:
    return content_digest(file, tensor_digests(file, 1, lambda done: None))


def same_model(found: WeightsFile, expected: WeightsFile) -> bool:
    tensors = {name: (info.shape, info.type) for name, info in found.tensors.items()}
    return config_of(found) == config_of(expected) and tensors == {
        name: (info.shape, info.type) for name, info in expected.tensors.items()
    }


def test_the_head_beside_a_model_is_found(whole: Path, parts: tuple[Path, Path]) -> None:
    trunk, draft = parts
    with open_drafting(trunk) as joined, open_weights(whole) as single:
        assert same_model(joined, single)
        assert joined.nbytes == trunk.stat().st_size + draft.stat().st_size
        assert all(joined.raw(name).tobytes() == single.raw(name).tobytes() for name in single.tensors)
        assert (joined.path, joined.path_of("blk.0.ssm_a")) == (trunk, trunk)
        assert joined.path_of(f"{DRAFT}attn_q.weight") == draft


def test_a_head_elsewhere_is_given_by_its_path(whole: Path, parts: tuple[Path, Path], tmp_path: Path) -> None:
    trunk, draft = parts
    elsewhere = draft.rename(tmp_path / "head.gguf")
    with open_drafting(trunk) as alone, open_drafting(trunk, elsewhere) as joined, open_weights(whole) as single:
        assert same_model(joined, single) and f"{DRAFT}attn_q.weight" not in alone.tensors


def test_the_embeddings_and_the_head_are_the_models_own(whole: Path, tmp_path: Path) -> None:
    """A tied model has no head: one in the draft's file must not take its place."""
    _, draft = part_draft(whole, tmp_path, LAYERS)
    other = write_part(whole, tmp_path / "other.gguf", lambda name: not name.startswith((DRAFT, "output.")),
                       {"block_count": LAYERS, "nextn_predict_layers": None})  # fmt: skip
    with open_drafting(other, draft) as joined:
        assert "output.weight" not in joined.tensors and joined.path_of("token_embd.weight") == other


def test_a_head_without_embeddings_will_do(whole: Path, tmp_path: Path) -> None:
    trunk, _ = part_draft(whole, tmp_path, LAYERS, embeddings=False)
    with open_drafting(trunk) as joined, open_weights(whole) as single:
        assert same_model(joined, single)


def test_two_heads_that_fit_are_none(parts: tuple[Path, Path], caplog: pytest.LogCaptureFixture) -> None:
    trunk, draft = parts
    shutil.copy(draft, draft.with_name("mtp-second.gguf"))
    with open_drafting(trunk) as file:
        assert f"{DRAFT}attn_q.weight" not in file.tensors
    assert "mtp-model.gguf, mtp-second.gguf" in caplog.text and "--mtp" in caplog.text


def test_files_beside_the_model_that_do_not_fit_are_passed_over(parts: tuple[Path, Path], tmp_path: Path) -> None:
    trunk, draft = parts
    wide = write_tiny_qwen35(tmp_path / "wide.gguf", hidden=96)
    write_part(wide, draft.with_name("mtp-wide.gguf"), lambda name: name.startswith((DRAFT, "token_embd")))
    draft.with_name("mtp-broken.gguf").write_bytes(b"GGUF")
    write_tiny_llama(draft.with_name("mtp-llama.gguf"))
    with open_drafting(trunk) as file:
        assert file.path_of(f"{DRAFT}attn_q.weight") == draft and f"{DRAFT}attn_q.weight" in file.tensors


def test_a_model_with_a_head_of_its_own_needs_none(whole: Path, parts: tuple[Path, Path]) -> None:
    _, draft = parts
    shutil.copy(draft, whole.with_name("mtp-more.gguf"))
    with open_drafting(whole) as file:
        assert file.path_of(f"{DRAFT}attn_q.weight") == whole
    with pytest.raises(ModelFileError, match=r"whole\.gguf has a draft head of its own; leave out .*mtp-model\.gguf"):
        open_drafting(whole, draft)


def test_a_model_that_says_it_has_a_head_and_has_none_takes_another(whole: Path, tmp_path: Path) -> None:
    _, draft = part_draft(whole, tmp_path, LAYERS)
    stripped = write_part(whole, tmp_path / "stripped.gguf", lambda name: not name.startswith(DRAFT))
    with open_drafting(stripped) as joined, open_weights(whole) as single:
        assert same_model(joined, single)
    draft.unlink()
    with open_drafting(stripped) as alone, open_trunk(whole) as trunk:
        assert same_model(alone, trunk)


def test_without_its_head_a_model_is_its_trunk(whole: Path, parts: tuple[Path, Path]) -> None:
    trunk, _ = parts
    with open_trunk(whole) as shown, open_weights(trunk) as expected, open_drafting(trunk) as joined:
        assert same_model(shown, expected) and same_model(without_draft(joined), expected)
        assert identity(without_draft(joined)) == identity(expected) == identity(shown)
        assert identity(joined) != identity(expected)
        assert config_of(shown).kv_layers(F16)[0].layers == 2  # with the head, 3


def write_other(parts: tuple[Path, Path], case: str) -> Path:
    """A file that is no draft head of the model."""
    folder, draft = parts[0].parent, parts[1]
    target = folder / "other.gguf"
    match case:
        case "another architecture":
            return write_tiny_llama(target)
        case "a dense model's":
            dense = write_tiny_qwen35(folder / "dense.gguf", experts=0)
            return write_part(dense, target, lambda name: name.startswith(DRAFT))
        case "no head":
            return write_part(draft, target, lambda name: not name.startswith(DRAFT))
        case "no count of heads":
            return write_part(draft, target, lambda name: True, {"nextn_predict_layers": None})
        case "another depth":
            longer = write_tiny_qwen35(folder / "longer.gguf", layers=6)
            return write_part(longer, target, lambda name: name.startswith("blk.6."))
        case "another vocabulary":
            more = write_tiny_qwen35(folder / "more.gguf", vocab=320)
            return write_part(more, target, lambda name: name.startswith((DRAFT, "token_embd")))
        case "another list of tokens":
            more = write_tiny_qwen35(folder / "more.gguf", vocab=320)
            return write_part(more, target, lambda name: name.startswith(DRAFT))
    options: dict[str, dict[str, int]] = {
        "another width": {"hidden": 96},
        "other experts": {"experts": 8},
        "other heads": {"kv_heads": 4},
    }
    other = write_tiny_qwen35(folder / "whole.gguf", **options[case])  # type: ignore[arg-type]
    return write_part(other, target, lambda name: name.startswith(DRAFT))


MISFITS = {
    "another architecture": "is of the architecture 'llama' and .* of 'qwen35moe'",
    "a dense model's": "is of the architecture 'qwen35' and .* of 'qwen35moe'",
    "no head": "holds no draft head",
    "no count of heads": "holds no draft head",
    "another depth": "it has 6 for layers of the model, and the model 4",
    "another width": "it has 96 for embedding_length, and the model 64",
    "other experts": "it has 8 for expert_count, and the model 6",
    "other heads": r"it has 4 for attention\.head_count_kv, and the model 2",
    "another vocabulary": "it has 320 for tokens, and the model 288",
    "another list of tokens": "it has 320 for tokens, and the model 288",
}


@pytest.mark.parametrize("case", MISFITS)
def test_a_file_that_does_not_belong_to_the_model_is_refused_in_one_sentence(
    parts: tuple[Path, Path], case: str
) -> None:
    other = write_other(parts, case)
    with pytest.raises(ModelFileError, match=MISFITS[case]) as caught:
        open_drafting(parts[0], other)
    assert str(other) in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(parts: tuple[Path, Path]) -> None:
    with pytest.raises(ModelNotFoundError, match=r"no file .*mtp-gone\.gguf"):
        open_drafting(parts[0], parts[1].with_name("mtp-gone.gguf"))


def test_what_the_file_of_the_head_lacks_is_said_of_this_file(parts: tuple[Path, Path]) -> None:
    trunk, draft = parts
    short = write_part(draft, draft.with_name("short.gguf"), lambda name: name != f"{DRAFT}attn_q.weight")
    with (
        with_draft(open_weights(trunk), short) as file,
        WeightLoader(file, activations="int8", progress=lambda done: None) as weights,
    ):
        with pytest.raises(ModelError, match=rf"short\.gguf is incomplete: it has no tensor {DRAFT}attn_q\.weight\."):
            weights.matrix(f"{DRAFT}attn_q.weight", 256, 64)
        with pytest.raises(ModelError, match=rf"short\.gguf is broken: {DRAFT}attn_k\.weight has shape"):
            weights.matrix(f"{DRAFT}attn_k.weight", 256, 64)
