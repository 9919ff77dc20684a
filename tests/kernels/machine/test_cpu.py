"""What the processor has: its features and name, and cores by affinity and quota."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels.machine import cpu


def test_the_processor_has_a_name() -> None:
    assert cpu.cpu_name()


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder that stands for the root of the file system, on a machine of four cores."""
    cpu._first_processor.cache_clear()
    monkeypatch.setattr(cpu, "Path", lambda path: tmp_path / str(path).lstrip("/"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 5}, raising=False)
    yield tmp_path
    cpu._first_processor.cache_clear()


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(("quota", "cores"), [(None, 4), (2.0, 2), (1.5, 1), (0.2, 1), (9.0, 4)])
def test_cores_are_bounded_by_the_affinity_and_the_quota(
    system: Path, monkeypatch: pytest.MonkeyPatch, quota: float | None, cores: int
) -> None:
    monkeypatch.setattr(cpu, "processor_quota", lambda: quota)
    assert cpu.usable_cores() == cores


def test_a_name_is_found_without_cpuinfo(system: Path) -> None:
    assert cpu.cpu_name() and not cpu.features()


def test_the_first_processor_of_cpuinfo_counts(system: Path) -> None:
    first = "processor\t: 0\nmodel name\t: Abacus 3000: Gold\nflags\t\t: avx2 fma f16c\n"
    put(system / "proc/cpuinfo", first + "\n" + first.replace("Gold", "Lead").replace("avx2", "sse2"))
    assert cpu.cpu_name() == "Abacus 3000: Gold"
    assert cpu.features() == {"avx2", "fma", "f16c"}
    here = cpu.description()
    cpu._first_processor.cache_clear()
    put(system / "proc/cpuinfo", first.replace("avx2", "avx2 avx512f"))
    assert cpu.description() != here
