"""Which tiers a processor runs, by its features."""

import platform
import sys

import llvmlite.binding as llvm
import pytest

from kernels.machine import cpu
from kernels.simd import tiers
from kernels.simd.tiers import TIERS, TIERS_BY_NAME, TIERS_BY_NUMBER, supported_tiers

AVX2 = {"avx2", "fma", "f16c"}
AVX512 = {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"}
AMX = {"amx_tile", "amx_int8"}


@pytest.mark.parametrize(
    ("features", "names"),
    [
        (set(), ("generic",)),
        (AVX2 - {"f16c"}, ("generic",)),
        (AVX2, ("avx2", "generic")),
        (AVX2 | {"avx_vnni"}, ("avxvnni", "avx2", "generic")),
        (AVX2 | AVX512 - {"avx512_vnni"}, ("avx2", "generic")),
        (AVX2 | AVX512, ("avx512", "avx2", "generic")),
    ],
)
def test_a_tier_needs_all_its_features(
    monkeypatch: pytest.MonkeyPatch, features: set[str], names: tuple[str, ...]
) -> None:
    monkeypatch.setattr(tiers, "features", lambda: frozenset(features))
    assert supported_tiers() == names


@pytest.mark.parametrize("permitted", [False, True])
def test_matrix_tiles_need_the_systems_permission_too(monkeypatch: pytest.MonkeyPatch, permitted: bool) -> None:
    monkeypatch.setattr(tiers, "features", lambda: frozenset(AVX2 | AVX512 | AMX))
    monkeypatch.setattr(tiers, "matrix_tiles_permitted", lambda: permitted)
    assert supported_tiers() == ("amx",) * permitted + ("avx512", "avx2", "generic")


def test_names_and_numbers_are_all_different_and_generic_always_runs() -> None:
    assert len(TIERS_BY_NAME) == len(TIERS_BY_NUMBER) == len(TIERS)
    assert set(supported_tiers()) <= TIERS_BY_NAME.keys() and supported_tiers()[-1] == "generic"


@pytest.mark.skipif(platform.machine() != "x86_64" or sys.platform != "linux", reason="Linux names these features")
def test_the_system_and_the_compiler_see_the_same_features() -> None:
    compilers = llvm.get_host_cpu_features()
    names = {"amx_tile": "amx-tile", "amx_int8": "amx-int8", "avx512_vnni": "avx512vnni", "avx_vnni": "avxvnni"}
    for feature in set().union(*(tier.needs for tier in TIERS)):
        assert (feature in cpu.features()) == compilers[names.get(feature, feature)], feature
