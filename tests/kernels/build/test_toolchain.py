"""Kernels without a compiler: every module can be imported where there is none."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
IMPORT = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(sorted({"numba", "llvmlite"} & sys.modules.keys()))
"""
COMPILERS = {"compiler.py"}


def test_kernels_are_imported_without_numba() -> None:
    files = [path for path in (ROOT / "kernels").rglob("*.py") if path.name not in COMPILERS]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, *names],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
