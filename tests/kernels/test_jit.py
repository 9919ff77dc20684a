"""The cache of compiled kernels: where it lies, and that it never stands in the way."""

import os
import subprocess
import sys
from pathlib import Path

from kernels import jit

ROOT = Path(__file__).resolve().parents[2]


def chosen_folder(cache: Path) -> Path:
    """The cache folder that a fresh process chooses."""
    program = "import numba, kernels.jit; print(numba.config.CACHE_DIR)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | {"OCTAVO_CACHE": str(cache), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(done.stdout.strip())


def test_the_cache_is_private_and_old_folders_go(tmp_path: Path) -> None:
    for age in range(8):
        old = tmp_path / "kernels" / f"old{age}"
        old.mkdir(parents=True)
        os.utime(old, (1000 - age, 1000 - age))
    folder = chosen_folder(tmp_path)
    assert folder.parent == tmp_path / "kernels"
    assert {path.name for path in folder.parent.iterdir()} == {folder.name, "old0", "old1", "old2"}
    assert folder.stat().st_mode & 0o077 == 0
    assert chosen_folder(tmp_path) == folder


def test_a_cache_that_cannot_be_made_is_replaced_by_a_temporary_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    folder = chosen_folder(tmp_path / "file")
    assert folder.name.startswith("octavo-kernels-") and not folder.is_relative_to(tmp_path)
    assert not folder.exists()  # it went with the process that chose it


def test_a_kernel_has_an_address() -> None:
    from kernels.norm import pack_kernel

    assert jit.address(pack_kernel()) > 0
