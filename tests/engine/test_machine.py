"""Facts about the machine, here and on machines made of files."""

from pathlib import Path

import pytest

from engine import machine
from engine.machine import cache_folder
from kernels.machine.cpu import usable_cores
from kernels.simd.tiers import supported_tiers

GIGABYTE = 1 << 30


def test_the_machine_is_described_as_the_engine_will_use_it() -> None:
    found = machine.describe_machine()
    assert found.supported == supported_tiers() and found.isa == supported_tiers()[0]
    assert found.cores == usable_cores() and found.cores >= 1
    assert found.cpu and found.memory_bytes > 0
    assert found.cache_folder == cache_folder()


def test_bandwidth_is_a_positive_number() -> None:
    assert 0 < machine.measure_bandwidth(threads=1, megabytes=16) < 1e13


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that stands for the root of the file system, on a machine with 8 GB to spare."""
    monkeypatch.setattr(machine, "memory_room", lambda: None)
    monkeypatch.setattr(machine, "Path", lambda path: tmp_path / str(path).lstrip("/"))
    put(tmp_path / "proc/meminfo", f"MemTotal: 1 kB\nMemFree: 1 kB\nMemAvailable:  {8 << 20} kB\n")
    return tmp_path


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_a_limit_the_system_decides(system: Path) -> None:
    assert machine.available_memory() == 8 * GIGABYTE


@pytest.mark.parametrize(("room", "free"), [(3, 3), (100, 8), (0, 0)])
def test_the_control_groups_bound_the_memory(
    system: Path, monkeypatch: pytest.MonkeyPatch, room: int, free: int
) -> None:
    monkeypatch.setattr(machine, "memory_room", lambda: room * GIGABYTE)
    assert machine.available_memory() == free * GIGABYTE


def test_the_last_level_cache_is_the_largest(system: Path) -> None:
    assert machine.last_level_cache() == 0
    for index, size in enumerate(("32K", "512K", "32M")):
        put(system / f"sys/devices/system/cpu/cpu0/cache/index{index}/size", size + "\n")
    assert machine.last_level_cache() == 32 << 20
