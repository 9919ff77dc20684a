"""The comparison's arithmetic, table and order, on lines as the engines print them."""

import argparse
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.compare_llamacpp import command, main, order
from benchmarks.comparison import Line, compare, comparison_table


def octavo(what: str, round_number: int, **keys: object) -> Line:
    common = {"engine": "octavo", "version": "0.2", "threads": 2, "isa": "avx2", "model": "m.gguf"}
    return {**common, "what": what, "round": round_number, **keys}


def llama(what: str, flash: int, round_number: int, **keys: object) -> Line:
    common = {"engine": "llama.cpp", "version": "9", "threads": 2, "system": "AVX2 = 1", "model": "m.gguf"}
    return {**common, "what": what, "flash": flash, "round": round_number, **keys}


LINES = [
    *(octavo("bandwidth", i, gb_s=rate) for i, rate in enumerate((19.0, 20.0, 30.0))),
    *(octavo("decode", i, B=1, tok_s=rate, gb_s=rate / 2) for i, rate in enumerate((30.0, 36.0, 5.0))),
    *(octavo("prefill", i, n=512, tok_s=rate) for i, rate in enumerate((300.0, 310.0, 305.0))),
    *(llama("decode", 0, i, B=1, tok_s=rate) for i, rate in enumerate((10.0, 11.0, 90.0))),
    *(llama("decode", 1, i, B=1, tok_s=rate) for i, rate in enumerate((20.0, 19.0, 1.0))),
    *(llama("prefill", 0, i, n=512, tok_s=rate) for i, rate in enumerate((100.0, 90.0, 122.0))),
    *(llama("prefill", 1, i, n=512, tok_s=rate) for i, rate in enumerate((80.0, 91.0, 99.0))),
]


def test_medians_are_compared_with_the_better_of_flash_attention_off_and_on() -> None:
    decode, prefill = compare(LINES)
    assert (decode["octavo"], decode["llama.cpp"], decode["flash"]) == (30.0, 19.0, 1)
    assert decode["ratio"] == pytest.approx(30 / 19)
    assert (decode["gb_s"], decode["of_bandwidth"]) == (15.0, 0.75)
    assert (prefill["octavo"], prefill["llama.cpp"], prefill["flash"]) == (305.0, 100.0, 0)
    assert prefill["ratio"] == pytest.approx(3.05) and "of_bandwidth" not in prefill


def test_models_and_batch_sizes_are_compared_apart() -> None:
    other = [{**line, "model": "n.gguf"} for line in LINES] + [octavo("decode", 0, B=8, tok_s=1.0, gb_s=1.0)]
    rows = compare([*LINES, *other])
    sizes = [(row["model"], row["compared"], row["size"]) for row in rows]
    assert sizes[:4] == [(m, what, n) for m in ("m.gguf", "n.gguf") for what, n in (("decode", 1), ("prefill", 512))]
    assert sizes[4] == ("m.gguf", "decode", 8) and rows[4]["ratio"] is None


def test_the_table_tells_how_it_was_measured() -> None:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(comparison_table(LINES, compare(LINES)))
    shown = capture.get()
    for word in (
        "20.0 GB/s read",
        "0.2, 2 threads, avx2",
        "9, 2 threads, AVX2 = 1",
        "rounds     3",
        "1.58",
        "75%",
        "3.05",
    ):
        assert word in shown


def test_every_second_round_runs_backwards() -> None:
    assert order(0) == tuple(reversed(order(1))) == order(2)
    assert set(order(0)) == {"octavo", "llama.cpp", "llama.cpp flash"}


def test_all_engines_are_asked_for_the_same_work() -> None:
    sizes = {"threads": 2, "batch": "1,8", "prompt": 512, "gen": 48, "ctx0": 64, "reps": 2}
    arguments = argparse.Namespace(baseline=Path("/there"), isa="avx2", **sizes)
    lines = {engine: command(engine, Path("m.gguf"), arguments) for engine in order(0)}
    for line in lines.values():
        assert {f"--{name}={value}" for name, value in sizes.items()} <= set(line) and "m.gguf" in line
    assert "--isa=avx2" in lines["octavo"] and "--json" in lines["octavo"]
    assert lines["llama.cpp"][0] == "/there/bin/python" and "--flash=0" in lines["llama.cpp"]
    assert "--flash=1" in lines["llama.cpp flash"]


def test_a_missing_baseline_or_model_is_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["m.gguf", "--baseline", str(tmp_path)])
    assert "run benchmarks/build_llamacpp.sh" in capsys.readouterr().err
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    with pytest.raises(SystemExit):
        main([str(tmp_path / "m.gguf"), "--baseline", str(tmp_path)])
    assert "there is no file" in capsys.readouterr().err
