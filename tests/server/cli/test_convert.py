"""`octavo convert` and `octavo show`, from the command line to what they print and write."""

import json
from pathlib import Path

import numpy as np
import pytest

from engine.weights.files.gguf import GgufFile
from server.cli.main import main
from tests.engine.runners import GOLDEN
from tests.gguf_parts import part_draft, write_part
from tests.tiny.models import write_tiny_llama
from tests.tiny.qwen35 import write_tiny_qwen35


def test_a_folder_is_converted_and_quantized(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out.gguf"
    assert main(["convert", str(GOLDEN / "qwen3_moe"), str(target), "--type", "q8_0"]) == 0
    assert str(target).split("/")[-1] in capsys.readouterr().out
    with GgufFile.open(target) as file:
        assert file.architecture == "qwen3moe"
        assert file.tensors["blk.0.ffn_up_exps.weight"].type == "Q8_0"
        assert file.tensors["blk.0.ffn_gate_inp.weight"].type == "F32"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--type", "q3_k"], "cannot be quantized to 'q3_k'"),
        (["--threads", "0"], "--threads 0 is out of range"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["convert", str(GOLDEN / "qwen3_moe"), str(tmp_path / "out.gguf"), *arguments]) == 1
    error = capsys.readouterr().err
    assert message in error and len(error.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def shown(capsys: pytest.CaptureFixture[str], model: Path, *arguments: str) -> dict[str, object]:
    assert main(["show", str(model), "--json", "--no-measure", *arguments]) == 0
    card: dict[str, object] = json.loads(capsys.readouterr().out)
    return card


def test_bytes_a_step_are_those_of_the_matrices_and_the_experts_it_touches(
    capsys: pytest.CaptureFixture[str],
) -> None:
    card = shown(capsys, GOLDEN / "qwen3_moe")
    with_experts = 3 * 3 * 8 * 32 * 64 * 4  # layers, kinds of matrices, experts, rows, columns, bytes
    types = card["types"]
    assert isinstance(types, dict)
    embedding = 256 * 64 * 4  # only looked up: the head is a matrix of its own
    dense = types["F32"] - with_experts - embedding
    batches = card["batches"]
    assert isinstance(batches, list)
    for batch, line in zip((1, 4, 8), batches, strict=True):
        touched = 1 - (1 - 2 / 8) ** batch
        assert line["bytes_per_step"] == pytest.approx(dense + with_experts * touched, abs=1)
        assert line["bytes_per_token"] == pytest.approx(line["bytes_per_step"] / batch, abs=1)
    assert (card["experts"], card["active_experts"], card["layers"]) == (8, 2, 3)


def test_a_draft_head_is_counted_where_it_is_used(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    whole = write_tiny_qwen35(tmp_path / "whole.gguf")
    trunk, draft = part_draft(whole, tmp_path, 4)
    draft = draft.rename(tmp_path / "head.gguf")
    single, alone, joined = shown(capsys, whole), shown(capsys, trunk), shown(capsys, trunk, "--mtp", str(draft))
    sizes = ("name", "file_bytes")  # of two files, not of one
    assert {**joined, **{key: single[key] for key in sizes}} == single
    assert {**shown(capsys, whole, "--no-draft"), **{key: alone[key] for key in sizes}} == alone
    assert (single["draft_layers"], alone["draft_layers"], alone["draft_bytes"]) == (1, 0, 0)
    attention, experts, router, shared = (256 + 2 * 64 + 128) * 64 + 2 * 32, 3 * 32 * 64, 6 * 64, 3 * 32 * 64 + 64
    joining, norms = 2 * 64 * 64, 5 * 64
    assert single["draft_bytes"] == 4 * (attention + 2 * experts + router + shared + joining + norms)
    kv = [card["kv"] for card in (single, alone)]
    assert [group[0]["layers"] for group in kv if isinstance(group, list)] == [3, 2]


def test_quantizing_is_shown_before_it_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    plain, small = (shown(capsys, GOLDEN / "qwen3_moe", *more) for more in ((), ("--quantize", "q8_0")))
    assert plain["parameters"] == small["parameters"]
    assert list(small["types"]) == ["Q8_0", "F32"]  # type: ignore[call-overload]


def test_keys_and_values_are_counted_by_group_and_type(capsys: pytest.CaptureFixture[str]) -> None:
    halves, floats = (shown(capsys, GOLDEN / "gemma3", "--kv-type", name)["kv"] for name in ("f16", "f32"))
    assert halves == [
        {"layers": 2, "window": 0, "bytes_per_token": 2 * 2 * 32 * 2},
        {"layers": 10, "window": 8, "bytes_per_token": 2 * 10 * 32 * 2},
    ]
    assert [group["bytes_per_token"] for group in floats] == [512, 2560]  # type: ignore[attr-defined]


def test_the_draft_head_and_the_recurrent_state_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    card = shown(capsys, GOLDEN / "qwen3_5_moe")
    assert (card["layers"], card["draft_layers"]) == (8, 1)
    assert isinstance(card["state_bytes"], int) and card["state_bytes"] >= 6 * 4 * 16 * 16 * 4


def test_what_changes_nothing_and_the_identity_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_tiny_llama(tmp_path / "tiny.gguf")
    odd = write_part(model, tmp_path / "odd.gguf", lambda name: True, added={"llama.made.up": 7})
    assert main(["show", str(odd), "--no-measure"]) == 0
    table = " ".join(capsys.readouterr().out.split())
    card = shown(capsys, odd)
    assert card["warnings"] == ["The key llama.made.up = 7 is not known to this version, and changes nothing here."]
    assert "The key llama.made.up = 7 is not known" in table and str(card["fingerprint"]) in table
    assert card["fingerprint"] != shown(capsys, model)["fingerprint"]
    assert shown(capsys, odd, "--no-identify")["fingerprint"] is None


def test_a_model_that_means_something_else_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_tiny_llama(tmp_path / "tiny.gguf")
    embedder = write_part(model, tmp_path / "x.gguf", lambda name: True, added={"llama.attention.causal": False})
    assert main(["show", str(embedder)]) == 1
    assert "says llama.attention.causal = False, which this version cannot compute" in capsys.readouterr().err


def test_the_table_tells_the_speed_that_memory_allows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.machine.measure_bandwidth", lambda threads: 1e9)
    model = write_tiny_llama(tmp_path / "tiny.gguf", types="Q8_0")
    card = shown(capsys, model)
    assert main(["show", str(model)]) == 0
    output = capsys.readouterr().out
    assert "at 1.0 GB/s" in output and "llama" in output
    batches = card["batches"]
    assert isinstance(batches, list)
    for line in batches:
        assert f"{line['batch'] * 1e9 / line['bytes_per_step']:,.1f}" in output


def test_a_folder_that_is_quantized_as_it_is_loaded_gives_the_bits_of_the_converted_file(tmp_path: Path) -> None:
    folder, converted = str(GOLDEN / "llama3_rope"), str(tmp_path / "out.gguf")
    outputs = [tmp_path / "folder.npy", tmp_path / "file.npy"]
    assert main(["convert", folder, converted, "--type", "q8_0"]) == 0
    assert main(["logits", folder, "--quantize", "q8_0", "--tokens", "5,17,99", "--out", str(outputs[0])]) == 0
    assert main(["logits", converted, "--tokens", "5,17,99", "--out", str(outputs[1])]) == 0
    first, second = (np.load(path) for path in outputs)
    assert np.array_equal(first.view(np.uint32), second.view(np.uint32))
