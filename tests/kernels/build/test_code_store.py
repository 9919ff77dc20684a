"""The store of compiled kernels: where it lies, what it takes for whole, and that it never stands in the way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.build import code_store
from kernels.build.jit import Kernel
from kernels.build.machine_code import MachineCode
from kernels.sampling.sampling import _exp_weight

ROOT = Path(__file__).resolve().parents[3]
CODE = MachineCode(image=bytes(range(200)), entry=16, places=(32, 40), imports=((48, "cbrt"), (56, "memset")))


def chosen_folder(cache: Path, **settings: str) -> Path:
    """The folder that a fresh process chooses."""
    done = subprocess.run(
        [sys.executable, "-c", "from kernels.build import code_store; print(code_store.folder())"],
        cwd=ROOT,
        env=os.environ | {"OCTAVO_CACHE": str(cache), "PYTHONPATH": str(ROOT)} | settings,
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(done.stdout.strip())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(code_store, "_chosen", [tmp_path])
    return tmp_path


def test_the_store_is_private_and_old_folders_go(tmp_path: Path) -> None:
    for age in range(8):
        old = tmp_path / "kernels" / f"old{age}"
        old.mkdir(parents=True)
        os.utime(old, (1000 - age, 1000 - age))
    folder = chosen_folder(tmp_path)
    assert folder.parent == tmp_path / "kernels"
    assert {path.name for path in folder.parent.iterdir()} == {folder.name, "old0", "old1", "old2"}
    assert folder.stat().st_mode & 0o077 == 0
    assert chosen_folder(tmp_path) == folder


def test_what_numba_is_told_of_the_processor_has_a_folder_of_its_own(tmp_path: Path) -> None:
    assert chosen_folder(tmp_path) != chosen_folder(tmp_path, NUMBA_CPU_NAME="generic")


def test_another_processor_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here = code_store._digest()
    monkeypatch.setattr(code_store, "description", lambda: "x86_64 with other flags")
    assert code_store._digest() != here


def test_a_cache_that_cannot_be_made_is_replaced_by_a_temporary_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    folder = chosen_folder(tmp_path / "file")
    assert folder.name.startswith("octavo-kernels-") and not folder.is_relative_to(tmp_path)
    assert not folder.exists()  # it went with the process that chose it


def test_code_comes_back_as_it_was_written(folder: Path) -> None:
    code_store.write("a", CODE)
    assert code_store.read("a") == CODE and code_store.read("b") is None
    assert [path.stat().st_mode & 0o077 for path in folder.iterdir()] == [0]


def test_a_damaged_file_is_not_taken(folder: Path) -> None:
    code_store.write("a", CODE)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    versions = [whole[:end] for end in range(len(whole))]
    versions += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    for content in [*versions, whole + b"\0"]:
        path.write_bytes(content)
        assert code_store.read("a") is None
    path.write_bytes(whole)
    assert code_store.read("a") == CODE


@pytest.mark.parametrize("content", [b"", b"octavo 1 and what is no code"])
def test_a_kernel_whose_file_is_damaged_is_compiled_again(folder: Path, content: bytes) -> None:
    first, second, third = (Kernel(*_exp_weight.origin, _exp_weight._build, _exp_weight._signature) for _ in range(3))
    expected = first.call(-1.0)
    (path,) = folder.iterdir()
    written = path.read_bytes()
    path.write_bytes(content)
    assert second.call(-1.0) == expected
    assert MachineCode.from_bytes(path.read_bytes()).entry == MachineCode.from_bytes(written).entry
    second._build = third._build = lambda: pytest.fail("it was compiled though its code had been kept")
    assert third.call(-1.0) == expected
