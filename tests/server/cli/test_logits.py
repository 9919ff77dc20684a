"""`octavo logits`, as an engineer runs it."""

from pathlib import Path

import numpy as np
import pytest

from server.cli.main import main
from tests.reference.llama import ReferenceLlama
from tests.tiny.models import write_tiny_llama

IDS = [5, 260, 17, 17, 99, 3, 200]
TOKENS = ",".join(map(str, IDS))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("model") / "tiny.gguf", types="Q4_1", vocab=277, context=256)


def logits(model: Path, out: Path, *options: str) -> np.ndarray:
    assert main(["logits", str(model), "--tokens", TOKENS, "--out", str(out), *options]) == 0
    result: np.ndarray = np.load(out)
    return result


def test_logits_writes_a_row_for_each_token(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = logits(model, tmp_path / "out.npy")
    assert result.shape == (len(IDS), 277) and result.dtype == np.float32
    assert capsys.readouterr().out == f"{tmp_path / 'out.npy'}: float32 [7, 277]\n"


def test_float_activations_give_the_exact_logits(model: Path, tmp_path: Path) -> None:
    exact = ReferenceLlama(model).logits(IDS)
    result = logits(model, tmp_path / "out.npy", "--activations", "f32", "--kv-type", "f32")
    assert np.abs(result - exact).max() < 1e-4 * np.abs(exact).max()
    rounded = logits(model, tmp_path / "out.npy")
    assert 1e-4 < np.abs(rounded - exact).max() / np.abs(exact).max() < 0.1


def test_chunks_threads_and_tiers_give_the_same_file(model: Path, tmp_path: Path) -> None:
    first = logits(model, tmp_path / "a.npy", "--threads", "1")
    for options in (["--chunk", "1"], ["--chunk", "3", "--threads", "2"], ["--isa", "generic", "--chunk", "512"]):
        assert logits(model, tmp_path / "b.npy", *options).tobytes() == first.tobytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tokens", "1,x"], "'1,x' is no list of numbers; write them like 100,101,102."),
        (["--tokens", "1,277"], "A token id is out of range; this model's ids are 0 to 276."),
        (["--tokens", "-1,2"], "A token id is out of range"),
        (["--tokens", ",".join(["1"] * 257)], "257 tokens do not fit the context of 256."),
        (["--tokens", "1", "--chunk", "0"], "--chunk 0 is out of range"),
        (["--tokens", "1", "--threads", "0"], "--threads 0 is out of range"),
        (["--tokens", "1", "--isa", "sse9"], "There is no instruction tier 'sse9'"),
        (["--tokens", "1", "--kv-type", "q4_0"], "There is no type 'q4_0' of keys and values"),
        (["--tokens", "1", "--out", "/no/such/folder/out.npy"], "/no/such/folder/out.npy cannot be written"),
    ],
)
def test_a_bad_option_of_logits_is_one_line(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["logits", str(model), "--out", str(tmp_path / "out.npy"), *options]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"octavo: {message}") and error.count("\n") == 1


def test_a_text_file_called_gguf_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "note.gguf"
    path.write_text("This is no model.")
    assert main(["logits", str(path), "--tokens", "1", "--out", str(tmp_path / "out.npy")]) == 1
    error = capsys.readouterr().err
    assert "is not a GGUF file" in error and error.count("\n") == 1
