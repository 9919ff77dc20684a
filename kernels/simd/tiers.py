"""The tiers: instruction sets that kernels are written for, and all that depends on which one runs.

A new tier is a Tier here and, where its integer dot product differs, a class in dot.py.
"""

from dataclasses import dataclass

from kernels.machine.cpu import features, matrix_tiles_permitted
from kernels.simd.dot import Avx2Dot, Avx512Dot, AvxVnniDot, GenericDot


@dataclass(frozen=True)
class Tier:
    """One instruction set; kernels are compiled for its number."""

    name: str  # as --isa takes it
    number: int  # part of the names of compiled kernels; never reuse one
    needs: frozenset[str]  # the processor's extensions, as Linux names them
    dot: type[GenericDot]  # the integer dot product
    lanes: int  # float32 numbers of a vector register
    has_tiles: bool = False  # int8 matrix tiles, with which matmuls take 16 rows at once


_AVX2 = frozenset({"avx2", "fma", "f16c"})
_AVX512 = frozenset({"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"})

# Best first.
TIERS = (
    Tier("amx", 4, _AVX512 | {"amx_tile", "amx_int8"}, Avx512Dot, lanes=16, has_tiles=True),
    Tier("avx512", 2, _AVX512, Avx512Dot, lanes=16),
    Tier("avxvnni", 3, _AVX2 | {"avx_vnni"}, AvxVnniDot, lanes=8),
    Tier("avx2", 1, _AVX2, Avx2Dot, lanes=8),
    Tier("generic", 0, frozenset(), GenericDot, lanes=8),  # LLVM splits vectors where the processor's are narrower
)
TIERS_BY_NAME = {tier.name: tier for tier in TIERS}
TIERS_BY_NUMBER = {tier.number: tier for tier in TIERS}


def supported_tiers() -> tuple[str, ...]:
    """Return the names of the tiers that run here, best first; `generic` always does."""
    there = [tier for tier in TIERS if tier.needs <= features()]
    return tuple(tier.name for tier in there if not tier.has_tiles or matrix_tiles_permitted())
