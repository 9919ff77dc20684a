"""Folders of Qwen3.5 and Qwen3-Next: their logits and drafts, and those of the GGUF files that are made of them."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from engine.errors import ModelFileError, OctavoError, UnsupportedModelError
from engine.loading.runner import Runner
from engine.run.runner_protocol import SequenceRows
from engine.weights.convert import convert
from engine.weights.open_weights import open_weights
from engine.weights.safetensors_folder import SafetensorsFolder
from tests.engine.runners import GOLDEN, feed, loaded, same_bits
from tests.engine.weights.safetensors_bytes import write_folder
from tests.reference.hybrid import ReferenceHybrid
from tests.tiny.hybrids import KEY_HEADS, STATE, VALUE_HEADS, hybrid_config, hybrid_tensors, write_tiny_hybrid

TYPES = {"qwen3_5": "qwen35", "qwen3_next": "qwen3next"}
TOKENS = np.random.default_rng(0).integers(0, 288, 70).tolist()
TABLES = ((0, 1),)


@pytest.fixture(scope="module", params=TYPES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_hybrid(tmp_path_factory.mktemp("hybrid") / request.param, request.param)


def trunk_and_draft(runner: Runner) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Logits after each token, and the draft's."""
    rows = SequenceRows(TOKENS, 0, TABLES, len(TOKENS), final_rows=range(len(TOKENS)))
    logits = runner.run([rows]).copy()
    assert runner.draft is not None
    return logits, runner.draft.run(
        [SequenceRows(TOKENS[1:], 0, TABLES, len(TOKENS[1:]))], runner.final[:-1].copy()
    ).copy()


def check(found: NDArray[np.floating], expected: NDArray[np.floating]) -> None:
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()


def test_the_float64_reading_of_the_formulas_is_that_of_transformers() -> None:
    reference = ReferenceHybrid(GOLDEN / "qwen3_5_moe")
    with np.load(GOLDEN / "qwen3_5_moe" / "logits.npz") as golden:
        ids = golden["ids"].tolist()
        assert np.abs(reference.logits(ids) - golden["logits_full"]).max() < 2e-5 * np.abs(golden["logits_full"]).max()
        assert np.abs(reference.draft(ids) - golden["mtp_logits"]).max() < 2e-5 * np.abs(golden["mtp_logits"]).max()


def test_a_folder_gives_the_logits_and_drafts_of_the_formulas(folder: Path) -> None:
    reference = ReferenceHybrid(folder)
    with loaded(folder, activations="f32", kv_type="f32") as runner:
        logits, drafts = trunk_and_draft(runner)
    check(logits, reference.logits(TOKENS))
    check(drafts, reference.draft(TOKENS))


def test_chunks_and_threads_change_no_bit(folder: Path) -> None:
    with loaded(folder) as runner:
        whole = feed(runner, TOKENS, TABLES[0], 512)
    with loaded(folder, threads=2) as runner:
        assert same_bits(feed(runner, TOKENS, TABLES[0], 7), whole) and same_bits(
            feed(runner, TOKENS, TABLES[0], 1), whole
        )


def test_the_file_made_of_a_folder_gives_the_same_bits(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.gguf"
    with open_weights(folder) as file:
        assert file.architecture == TYPES[folder.name]
        convert(file, target, 1, lambda done: None)
    with loaded(folder) as runner:
        expected = trunk_and_draft(runner)
    with loaded(target) as runner:
        assert all(same_bits(*pair) for pair in zip(trunk_and_draft(runner), expected, strict=True))


def joined_projections(source: Path, target: Path) -> Path:
    """The qwen3next file as older converters wrote it: with ssm_in, by key head, for attn_qkv and attn_gate."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "qwen3next")
    for key, field in reader.fields.items():
        if key.startswith(("qwen3next.", "tokenizer.")):
            writer.add_key_value(
                key, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None
            )
    tensors = {tensor.name: tensor.data for tensor in reader.tensors}
    for name in [name for name in tensors if name.endswith(".attn_gate.weight")]:
        block = name.removesuffix("attn_gate.weight")
        keys, repeats = KEY_HEADS * STATE, VALUE_HEADS // KEY_HEADS
        q, k, v = np.split(tensors.pop(f"{block}attn_qkv.weight"), [keys, 2 * keys])
        parts = [(q, 1), (k, 1), (v, repeats), (tensors.pop(name), repeats)]
        by_head = [part.reshape(KEY_HEADS, count * STATE, -1) for part, count in parts]
        tensors[f"{block}ssm_in.weight"] = np.concatenate(by_head, axis=1).reshape(-1, by_head[0].shape[-1])
    for name, values in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


@pytest.fixture(scope="module")
def qwen3next(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file as converters write it now."""
    folder = tmp_path_factory.mktemp("next")
    with open_weights(write_tiny_hybrid(folder / "folder", "qwen3_next")) as file:
        convert(file, folder / "new.gguf", 1, lambda done: None)
    return folder / "new.gguf"


def test_an_older_qwen3next_file_gives_the_same_bits(qwen3next: Path, tmp_path: Path) -> None:
    older = joined_projections(qwen3next, tmp_path / "older.gguf")
    with open_weights(older) as file:
        assert "blk.0.ssm_in.weight" in file.tensors and "blk.0.attn_qkv.weight" not in file.tensors
    with loaded(qwen3next) as runner:
        expected = trunk_and_draft(runner)
    with loaded(older) as runner:
        assert all(same_bits(*pair) for pair in zip(trunk_and_draft(runner), expected, strict=True))


def test_a_tied_head_is_left_out(tmp_path: Path) -> None:
    config, tensors = hybrid_config("qwen3_5"), hybrid_tensors("qwen3_5", 0)
    config["text_config"]["tie_word_embeddings"] = True
    with SafetensorsFolder(write_folder(tmp_path / "tied", config, tensors)) as folder:
        assert "output.weight" not in folder.tensors


WRONG: dict[str, tuple[str, dict[str, object], type[OctavoError], str]] = {
    "shares that are not scaled": ("qwen3_next", {"norm_topk_prob": False}, UnsupportedModelError, "shares to 1"),
    "layers without experts": ("qwen3_next", {"mlp_only_layers": [0]}, UnsupportedModelError, "without experts"),
    "other heads": ("qwen3_next", {"linear_num_value_heads": 4}, ModelFileError, "does not fit its tensors"),
    "heads shared unevenly": ("qwen3_next", {"linear_num_value_heads": 5}, ModelFileError, "evenly"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_config_that_does_not_fit_is_refused_in_one_sentence(tmp_path: Path, case: str) -> None:
    model_type, changes, error, message = WRONG[case]
    folder = write_folder(tmp_path / "x", hybrid_config(model_type) | changes, hybrid_tensors(model_type, 0))
    with pytest.raises(error, match=message) as caught:
        SafetensorsFolder(folder)
    assert "\n" not in str(caught.value)
