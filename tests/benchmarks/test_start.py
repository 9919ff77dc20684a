"""What the benchmark of starts says of them."""

import os
import time
from pathlib import Path

import pytest

from benchmarks import start
from benchmarks.start import Start


def test_medians_are_of_each_column() -> None:
    starts = [Start(1.0, 9.0, 2.0), Start(3.0, 8.0, 5.0), Start(2.0, 7.0, 4.0)]
    assert start.medians(starts) == Start(2.0, 8.0, 4.0)


def test_the_processors_time_is_that_of_the_process() -> None:
    before = time.process_time()
    found = start._processor_seconds(os.getpid())
    assert before - 0.05 <= found <= time.process_time() + 0.05


def test_an_empty_cache_has_the_models_and_no_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    for folder, name in (("models", "a.gguf"), ("kernels", "k.nbi")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(name)
    with start.empty_cache() as environment:
        files = [path for path in Path(environment["OCTAVO_CACHE"]).rglob("*") if path.is_file()]
        assert [path.name for path in files] == ["a.gguf"]


def test_a_server_that_does_not_start_ends_the_benchmark_with_its_words(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"(?s)did not get ready: .*octavo: "):
        start.measure_start(str(tmp_path / "nothing.gguf"), os.environ)
