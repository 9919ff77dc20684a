"""`octavo doctor`, on a sound machine and on a poor one."""

from pathlib import Path

import pytest

from engine.machine import Machine
from server.cli.doctor import find_troubles
from server.cli.main import main


def a_machine(folder: Path, *, isa: str = "avx2", memory: int = 8 << 30) -> Machine:
    return Machine(
        cpu="Abacus 3000",
        isa=isa,
        supported=(isa,),
        cores=1,
        memory_bytes=memory,
        cache_folder=folder / "new" / "cache",
        kernels="compiled again at each start. Why not?",
    )


def test_doctor_describes_a_sound_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("server.cli.doctor.describe_machine", lambda: a_machine(tmp_path))
    assert main(["doctor", "--megabytes", "16"]) == 0
    shown = capsys.readouterr().out
    assert all(
        word in shown
        for word in ("Abacus 3000", "avx2", "1 usable", "8.6 GB free", "Why not?", "GB/s", "Nothing is wrong.")
    )


def test_doctor_describes_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--megabytes", "16"]) in (0, 1)
    assert "isa " in capsys.readouterr().out


def test_doctor_names_every_trouble_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    poor = a_machine(tmp_path, isa="generic", memory=100 << 20)
    monkeypatch.setattr("server.cli.doctor.describe_machine", lambda: poor)
    assert main(["doctor", "--megabytes", "16"]) == 1
    shown = capsys.readouterr().out
    assert "neither AVX2 nor AVX-512" in shown and "Less than 1 GB" in shown and "Nothing is wrong" not in shown


def test_a_cache_folder_that_cannot_be_written_is_a_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_troubles(a_machine(tmp_path)) == []
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert [trouble for trouble in find_troubles(a_machine(tmp_path)) if "OCTAVO_CACHE" in trouble]
