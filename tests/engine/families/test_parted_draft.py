"""A draft head in a file of its own drafts as from the model's file, and where it is not used it is not built."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.api.config import EngineConfig
from engine.api.sampling import Sampling
from engine.errors import ModelFileError, OctavoError
from engine.loading.runner import Runner
from engine.model import ServedModel, load_model
from engine.run.runner_protocol import SequenceRows
from engine.weights.draft_head import open_drafting, open_trunk
from tests.engine.runners import GOLDEN, blocks_for, loaded, same_bits
from tests.engine.scheduling.speculation.forced import served, try_all_drafts
from tests.engine.scripted import a_request
from tests.gguf_parts import part_draft
from tests.tiny.qwen35 import write_tiny_qwen35

WHOLE = GOLDEN / "qwen3_5_moe" / "model.gguf"


@pytest.fixture(scope="module")
def trunk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden model without its draft head, which lies beside it."""
    return part_draft(WHOLE, tmp_path_factory.mktemp("parted"), 8, embeddings=False)[0]


def trunk_and_draft(runner: Runner, ids: list[int]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    tables = (list(range(blocks_for(len(ids)))),)
    rows = SequenceRows(ids, 0, tables, len(ids), final_rows=range(len(ids)))
    logits = runner.run([rows]).copy()
    assert runner.draft is not None
    states = runner.final[:-1].copy()
    return logits, runner.draft.run([SequenceRows(ids[1:], 0, tables, len(ids[1:]))], states).copy()


@pytest.mark.parametrize("activations", ["f32", "int8"])
def test_its_logits_are_the_golden_ones_to_the_bit_of_the_whole_file(trunk: Path, activations: str) -> None:
    with np.load(GOLDEN / "qwen3_5_moe" / "logits.npz") as golden:
        ids, expected = golden["ids"].tolist(), golden["mtp_logits"]
    with loaded(WHOLE, activations=activations, kv_type="f32") as runner:
        single = trunk_and_draft(runner, ids)
    with loaded(trunk, activations=activations, kv_type="f32", opened=open_drafting) as runner:
        parted = trunk_and_draft(runner, ids)
    assert all(same_bits(*pair) for pair in zip(single, parted, strict=True))
    if activations == "f32":
        assert np.abs(parted[1] - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    folder = tmp_path_factory.mktemp("tiny")
    whole = write_tiny_qwen35(folder / "whole.gguf", types="Q8_0", context=256)
    with loaded(part_draft(whole, folder, 4)[0], rows=64, lanes=3, opened=open_drafting) as runner:
        yield runner


def test_answers_are_the_same_with_and_without_its_drafts(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    try_all_drafts(monkeypatch)
    requests = [
        a_request(
            tuple(np.random.default_rng(number).integers(0, 288, 30 + 40 * number).tolist()),
            name=f"r{number}",
            max_tokens=40,
            ignore_eos=True,
            sampling=Sampling(temperature=number % 2, seed=number, allowed_tokens=tuple(range(1, 20))),
        )
        for number in range(3)
    ]
    plain = served(runner, requests, EngineConfig(lanes=3, prefill_rows=48, speculation="off"))
    drafted = served(runner, requests, EngineConfig(lanes=3, prefill_rows=48, speculation="mtp"))
    assert drafted.items == plain.items and drafted.logits == plain.logits
    assert drafted.drafted > 100


def test_a_trunk_alone_takes_less_and_has_the_same_bits(trunk: Path) -> None:
    ids = list(range(40))
    with loaded(WHOLE) as whole, loaded(WHOLE, opened=open_trunk) as alone:
        assert whole.draft is not None and alone.draft is None
        rows = SequenceRows(ids, 0, ([0],), len(ids))
        assert same_bits(whole.run([rows]).copy(), alone.run([rows]).copy())
        assert 3 * alone.groups[0].block_bytes == 2 * whole.groups[0].block_bytes


def model_with(path: Path, **options: object) -> ServedModel:
    return load_model(str(path), EngineConfig(threads=1, lanes=1, **options), lambda stage, share: None)  # type: ignore[arg-type]


@pytest.fixture
def parted(tmp_path: Path) -> tuple[Path, Path]:
    return part_draft(write_tiny_qwen35(tmp_path / "whole.gguf"), tmp_path, 4)


def drafts(model: ServedModel) -> bool:
    model.service._runner.close()
    return model.service._runner.draft is not None


def test_the_head_is_built_only_for_the_speculation_that_uses_it(parted: tuple[Path, Path]) -> None:
    models = {kind: model_with(parted[0], speculation=kind) for kind in ("auto", "mtp", "ngram", "off")}
    assert {kind: drafts(model) for kind, model in models.items()} == {
        "auto": True,
        "mtp": True,
        "ngram": False,
        "off": False,
    }
    assert len({model.fingerprint for model in models.values()}) == 1
    assert len({model.weights for model in models.values()}) == 1  # what a step reads, without drafts
    cached = {kind: model.service._config.cache_identity for kind, model in models.items()}
    assert cached["auto"] == cached["mtp"] != cached["ngram"] == cached["off"]


def test_a_file_that_is_not_used_is_not_read(parted: tuple[Path, Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"not a model")
    assert not drafts(model_with(parted[0], speculation="ngram", mtp=broken))
    with pytest.raises(ModelFileError, match=r"broken\.gguf is not a GGUF file"):
        model_with(parted[0], mtp=broken)


def test_speculation_by_a_head_that_is_not_there_is_refused(parted: tuple[Path, Path]) -> None:
    parted[1].unlink()
    with pytest.raises(OctavoError, match="no draft block"):
        model_with(parted[0], speculation="mtp")
