"""Compiles the avx512 tiles for a processor that may not be here, in a process of its own; takes a folder.

Writes the optimized LLVM IR (.ll) and the assembly (.s) of each tile, and runs none of them.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FEATURES = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni")


def tile_name(weight_type: str, lanes: int) -> str:
    return f"{weight_type}-{lanes}"


def compile_into(folder: Path) -> None:
    """Start the process; Numba reads its target from the environment when it is imported."""
    target = {
        "NUMBA_CPU_NAME": "icelake-server",
        "NUMBA_CPU_FEATURES": ",".join(f"+{feature}" for feature in FEATURES),
        "PYTHONPATH": str(ROOT),
        "OCTAVO_CACHE": str(folder / "cache"),  # a tile from a cache comes without its IR
    }
    command = [sys.executable, "-m", "tests.kernels.avx512_compiler", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | target, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def main(folder: Path) -> None:
    from kernels.activations import TILE_WIDTHS
    from kernels.cpu import TIER_NUMBERS
    from kernels.gemv import compile_tile
    from kernels.quant.weight_types import WEIGHT_TYPES
    from tests.kernels.ops import QUANTIZED

    for name in QUANTIZED:
        for lanes in TILE_WIDTHS:
            tile = compile_tile(WEIGHT_TYPES[name], lanes, TIER_NUMBERS["avx512"])
            (folder / f"{tile_name(name, lanes)}.ll").write_text(tile.inspect_llvm())
            (folder / f"{tile_name(name, lanes)}.s").write_text(tile._library.get_asm_str())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
