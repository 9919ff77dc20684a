"""What this processor has: instruction sets as Octavo's tiers, and the cores that this process may use."""

import ctypes
import functools
import os
import platform
from collections.abc import Mapping
from pathlib import Path

from kernels.run.cgroup import processor_quota

# Best first. The number is what kernels are specialised on; it is part of the key of the compiled-kernel cache.
TIER_NUMBERS = {"amx": 4, "avx512": 2, "avxvnni": 3, "avx2": 1, "generic": 0}

_AVX512 = {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"}
_NEEDS = {
    "amx": _AVX512 | {"amx_tile", "amx_int8"},
    "avx512": _AVX512,
    "avxvnni": {"avx2", "fma", "f16c", "avx_vnni"},
    "avx2": {"avx2", "fma", "f16c"},
    "generic": set[str](),
}

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18  # Linux x86-64, asm/prctl.h


def features() -> frozenset[str]:
    """Return the names (Linux's) of the instruction-set extensions that the processor and the system allow."""
    return frozenset(_first_processor().get("flags", "").split())


def description() -> str:
    """Return all that a compiler may choose instructions by."""
    told = _first_processor()
    keys = ("vendor_id", "cpu family", "model", "stepping", "flags")
    return "\n".join([platform.machine(), *(told.get(key, "") for key in keys)])


@functools.cache
def _first_processor() -> Mapping[str, str]:
    """What the system tells of the first processor: its part of /proc/cpuinfo, or nothing."""
    told: dict[str, str] = {}
    try:
        with Path("/proc/cpuinfo").open() as lines:
            for line in lines:
                if not line.strip():  # here the second begins
                    break
                key, _, value = line.partition(":")
                told[key.strip()] = value.strip()
    except OSError:
        pass
    return told


def supported_tiers() -> tuple[str, ...]:
    """Return the tiers that run here, best first; `generic` always does."""
    there = [tier for tier, needs in _NEEDS.items() if needs <= features()]
    return tuple(tier for tier in there if tier != "amx" or _matrix_tiles_permitted())


@functools.cache
def _matrix_tiles_permitted() -> bool:
    """Ask Linux, once a process, for the use of matrix tiles; False where the system does not know or allow them."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0)


def has_half_instructions() -> bool:
    """Return whether the processor converts between float32 and half precision by itself."""
    return "f16c" in features()


def cpu_name() -> str:
    """Return the processor's own name where the system tells it."""
    return _first_processor().get("model name") or platform.processor() or platform.machine()


def usable_cores() -> int:
    """Return how many cores this process may keep busy: its affinity, bounded by the quota of its control groups."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = processor_quota()
    return allowed if quota is None else max(1, min(allowed, int(quota)))
