"""What the processor has: tiers by feature, and cores by affinity and quota."""

import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from kernels.run import cpu

AVX2 = {"avx2", "fma", "f16c"}
AVX512 = {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"}


@pytest.mark.parametrize(
    ("features", "tiers"),
    [
        (set(), ("generic",)),
        (AVX2 - {"f16c"}, ("generic",)),
        (AVX2, ("avx2", "generic")),
        (AVX2 | AVX512 - {"avx512_vnni"}, ("avx2", "generic")),
        (AVX2 | AVX512, ("avx512", "avx2", "generic")),
    ],
)
def test_a_tier_needs_all_its_features(
    monkeypatch: pytest.MonkeyPatch, features: set[str], tiers: tuple[str, ...]
) -> None:
    monkeypatch.setattr(cpu, "features", lambda: frozenset(features))
    assert cpu.supported_tiers() == tiers


def test_every_tier_has_a_number_and_generic_always_runs() -> None:
    assert set(cpu.supported_tiers()) <= cpu.TIER_NUMBERS.keys()
    assert cpu.supported_tiers()[-1] == "generic"


def test_the_processor_has_a_name() -> None:
    assert cpu.cpu_name()


@pytest.mark.skipif(platform.machine() != "x86_64" or sys.platform != "linux", reason="Linux names these features")
def test_the_system_and_the_compiler_see_the_same_features() -> None:
    compilers = llvm.get_host_cpu_features()
    names = {"amx_tile": "amx-tile", "amx_int8": "amx-int8", "avx512_vnni": "avx512vnni", "avx_vnni": "avxvnni"}
    for feature in set().union(*cpu._NEEDS.values()):
        assert (feature in cpu.features()) == compilers[names.get(feature, feature)], feature


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
    assert cpu.cpu_name() and cpu.supported_tiers() == ("generic",)


def test_the_first_processor_of_cpuinfo_counts(system: Path) -> None:
    first = "processor\t: 0\nmodel name\t: Abacus 3000: Gold\nflags\t\t: avx2 fma f16c\n"
    put(system / "proc/cpuinfo", first + "\n" + first.replace("Gold", "Lead").replace("avx2", "sse2"))
    assert cpu.cpu_name() == "Abacus 3000: Gold"
    assert cpu.supported_tiers() == ("avx2", "generic")
    here = cpu.description()
    cpu._first_processor.cache_clear()
    put(system / "proc/cpuinfo", first.replace("avx2", "avx2 avx512f"))
    assert cpu.description() != here
