"""Compiles tiles for a processor that may not be here, in a process of its own; takes a tier, a folder and tile names.

Writes the optimized LLVM IR (.ll) and the assembly (.s) of each tile, and runs none of them.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_AVX2 = ("avx", "avx2", "fma", "f16c")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni")
PROCESSORS = {
    "avxvnni": ("alderlake", (*_AVX2, "avxvnni")),
    "avx512": ("icelake-server", _AVX512),
    "amx": ("sapphirerapids", (*_AVX512, "amx-tile", "amx-int8")),
}


def tile_name(weight_type: str, lanes: int) -> str:
    return f"{weight_type}-{lanes}"


def compile_into(folder: Path, tier: str, tiles: Sequence[str]) -> None:
    """Start the process; Numba reads its target from the environment when it is imported."""
    processor, features = PROCESSORS[tier]
    target = {
        "NUMBA_CPU_NAME": processor,
        "NUMBA_CPU_FEATURES": ",".join(f"+{feature}" for feature in features),
        "PYTHONPATH": str(ROOT),
        "OCTAVO_CACHE": str(folder / "cache"),  # a tile from a cache comes without its IR
    }
    command = [sys.executable, "-m", "tests.kernels.build.cross_compiler", tier, str(folder), *tiles]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | target, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def main(tier: str, folder: Path, tiles: Sequence[str]) -> None:
    import numba  # noqa: F401, before kernels/: that makes them compile here

    from kernels.build.compiler import compile_library, link
    from kernels.matmul.gemv import compile_tile
    from kernels.quant.weight_types import WEIGHT_TYPES
    from kernels.simd.tiers import TIERS_BY_NAME

    for name in tiles:
        weight_type, _, lanes = name.rpartition("-")
        tile = compile_tile(WEIGHT_TYPES[weight_type], int(lanes), TIERS_BY_NAME[tier].number)
        library, entry = compile_library(tile._build(), tile._signature)
        assert link(library._get_compiled_object(), entry).image  # code for any tier can be kept
        (folder / f"{name}.ll").write_text(library.get_llvm_str())
        (folder / f"{name}.s").write_text(library.get_asm_str())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
