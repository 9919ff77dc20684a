"""`octavo bench engine` and `octavo bench kernels`, as an engineer runs them."""

import json
from pathlib import Path
from typing import Any

import pytest

from kernels.quant.weight_types import WEIGHT_TYPES
from kernels.run.probes import read_bandwidth
from kernels.run.team import Team
from server.cli.main import main
from tests.tiny.models import write_tiny_llama


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("model") / "tiny.gguf", types="Q4_1", vocab=277, context=256)


def json_lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def small_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure bandwidth over 16 MiB, not over the gigabyte that a true number needs."""

    def measure(team: Team, megabytes: int) -> float:
        return read_bandwidth(team, 16, repeats=1)

    monkeypatch.setattr("engine.measure.bench_engine.read_bandwidth", measure)


SMALL = ["--batch", "1,3", "--prompt", "40", "--gen", "6", "--ctx0", "5", "--reps", "1", "--threads", "1"]


@pytest.mark.usefixtures("small_buffer")
def test_bench_prints_one_json_line_a_measurement(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "engine", str(model), *SMALL, "--isa", "generic", "--json"]) == 0
    lines = json_lines(capsys)
    assert [line["what"] for line in lines] == ["bandwidth", "prefill", "decode", "decode"]
    assert all(line["engine"] == "octavo" and line["threads"] == 1 and line["isa"] == "generic" for line in lines)
    assert lines[0]["gb_s"] > 0
    assert lines[1]["n"] == 40 and lines[1]["tok_s"] > 0
    assert [(line["B"], line["ctx0"]) for line in lines[2:]] == [(1, 5), (3, 5)]
    for line in lines[2:]:
        assert line["tok_s"] == pytest.approx(line["B"] / line["ms_step"] * 1000)
        assert line["best"] >= line["tok_s"] and line["gb_s"] > 0


@pytest.mark.usefixtures("small_buffer")
def test_bench_prints_a_table_for_people(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "engine", str(model), *SMALL]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("bandwidth", "prefill", "decode", "tok/s"))


@pytest.mark.usefixtures("small_buffer")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch", "0"], "--batch 0 is out of range; give numbers from 1 to 64."),
        (["--batch", "1,many"], "'1,many' is no list of numbers"),
        (["--prompt", "300"], "The measurement needs 300 tokens, but the context holds 256."),
        (["--ctx0", "250", "--prompt", "1", "--gen", "7"], "The measurement needs 257 tokens"),
    ],
)
def test_a_bad_option_of_bench_is_one_line(
    model: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["bench", "engine", str(model), *options]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"octavo: {message}") and error.count("\n") == 1


@pytest.mark.usefixtures("small_buffer")
def test_the_ledger_of_every_size_sums_to_its_step(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "engine", str(model), *SMALL, "--ledger", "--json"]) == 0
    lines = json_lines(capsys)
    totals = [line for line in lines if line["what"] == "ledger total"]
    assert [(total.get("n"), total.get("B")) for total in totals] == [(40, None), (None, 1), (None, 3)]
    for total in totals:
        entries = [line for line in lines if line["what"] == "ledger" and line.get("B") == total.get("B")]
        assert sum(entry["ms"] for entry in entries) == pytest.approx(total["ms_step"])
        assert sum(entry["share"] for entry in entries) == pytest.approx(1)
        (python,) = (entry for entry in entries if entry["kind"] == "python")
        assert total["coverage"] == pytest.approx(1 - python["share"])


@pytest.mark.usefixtures("small_buffer")
def test_bench_prints_a_table_for_each_ledger(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "engine", str(model), *SMALL, "--ledger"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("prefill of 40:", "decode, batch 1:", "decode, batch 3:", "embedding"))


KERNELS = ["--shape", "48x256", "--rows", "1,9", "--reps", "2", "--megabytes", "1", "--threads", "1"]


def test_kernels_are_measured_against_the_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "kernels", "--types", "Q4_0,F16", *KERNELS, "--isa", "generic", "--json"]) == 0
    lines = json_lines(capsys)
    assert [(line["type"], line["rows"]) for line in lines] == [("Q4_0", 1), ("Q4_0", 9), ("F16", 1), ("F16", 9)]
    for line in lines:
        assert (line["shape"], line["threads"], line["isa"]) == ("48x256", 1, "generic")
        assert line["of_read"] == pytest.approx(line["gb_s"] / line["read_gb_s"])
        assert line["of_peak"] == pytest.approx(line["gop_s"] / line["peak_gop_s"])
        assert line["gop_s"] == pytest.approx(2 * line["rows"] * 48 * 256 / line["us"] / 1e3)
        packed_bytes = {"Q4_0": 48 * 256 * 18 / 32, "F16": 48 * 256 * 2}[line["type"]]
        assert line["gb_s"] == pytest.approx(packed_bytes / line["us"] / 1e3)


def test_kernels_prints_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "kernels", "--types", "Q8_0", *KERNELS, "--shape", "16x512"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("Q8_0", "48x256", "16x512", "of read", "of peak"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--types", "Q4_0,Q9_Z"], f"There is no weight type 'Q9_Z'; --types takes {', '.join(WEIGHT_TYPES)}."),
        (["--types", "Q4_0", "--shape", "48x100"], "Q4_0 cannot hold rows of 100 values; choose another --shape."),
        (["--shape", "48"], "'48' is no shape; write outputs and columns like 2048x8192."),
        (["--shape", "0x32"], "'0x32' is no shape"),
        (["--rows", "0"], "--rows 0 is out of range; give numbers from 1 to 4096."),
    ],
)
def test_a_bad_option_of_kernels_is_one_line(
    capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["bench", "kernels", "--megabytes", "1", "--threads", "1", *options]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"octavo: {message}") and error.count("\n") == 1
