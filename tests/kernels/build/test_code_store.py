"""The store of compiled kernels: where it lies, what it takes for whole, and that it never stands in the way."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kernels.build import code_store as module
from kernels.build import jit
from kernels.build.cache_folder import CacheFolderError
from kernels.build.code_store import CodeStore
from kernels.build.jit import Kernel
from kernels.build.machine_code import MachineCode
from kernels.machine.memory import address_of
from kernels.sampling.sampling import _argmax

ROOT = Path(__file__).resolve().parents[3]
CODE = MachineCode(image=bytes(range(200)), entry=16, places=(32, 40), imports=((48, "cbrt"), (56, "memset")))


def chosen_folder(cache: Path, **settings: str) -> Path:
    """The folder that a fresh process chooses."""
    done = subprocess.run(
        [sys.executable, "-c", "from kernels.build.code_store import code_store; print(code_store().folder)"],
        cwd=ROOT,
        env=os.environ | {"OCTAVO_CACHE": str(cache), "PYTHONPATH": str(ROOT)} | settings,
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(done.stdout.strip())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture
def store(folder: Path) -> CodeStore:
    return CodeStore(folder)


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
    here = module._digest()
    monkeypatch.setattr(module, "description", lambda: "x86_64 with other flags")
    assert module._digest() != here


def test_a_cache_that_cannot_be_made_is_replaced_by_a_temporary_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    folder = chosen_folder(tmp_path / "file")
    assert folder.name.startswith("octavo-kernels-") and not folder.is_relative_to(tmp_path)
    assert not folder.exists()  # it went with the process that chose it


def test_code_comes_back_as_it_was_written(folder: Path, store: CodeStore) -> None:
    store.write("a", CODE)
    assert store.read("a") == CODE and store.read("b") is None
    assert [path.stat().st_mode & 0o077 for path in folder.iterdir()] == [0]


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o750])
def test_a_folder_that_is_open_to_others_is_no_store(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with pytest.raises(CacheFolderError, match=f"Other users could have put compiled kernels into {folder}; remove it"):
        CodeStore(folder)


def test_a_link_is_no_store(folder: Path) -> None:
    (folder / "store").mkdir(mode=0o700)
    (folder / "link").symlink_to(folder / "store")
    with pytest.raises(OSError, match="link"):
        CodeStore(folder / "link")


def test_a_link_to_code_is_not_followed(folder: Path, store: CodeStore) -> None:
    store.write("a", CODE)
    (folder / "a.code").rename(folder / "elsewhere")
    (folder / "a.code").symlink_to(folder / "elsewhere")
    assert store.read("a") is None


def test_what_is_no_file_is_not_waited_for(folder: Path, store: CodeStore) -> None:
    os.mkfifo(folder / "a.code")
    assert store.read("a") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_another_users_file_is_not_taken(folder: Path, store: CodeStore) -> None:
    store.write("a", CODE)
    os.chown(folder / "a.code", 12345, -1)
    assert store.read("a") is None


def test_a_folder_put_in_the_stores_place_is_neither_read_nor_written(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o700)
    store = CodeStore(tmp_path / "store")
    (tmp_path / "store").rename(tmp_path / "before")
    (tmp_path / "store").mkdir(mode=0o700)
    CodeStore(tmp_path / "store").write("a", CODE)
    assert store.read("a") is None
    store.write("b", CODE)
    assert [path.name for path in (tmp_path / "before").iterdir()] == ["b.code"]


def test_nothing_is_left_of_a_file_that_could_not_be_written(
    folder: Path, store: CodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "replace", lambda *_, **__: (_ for _ in ()).throw(OSError("no room")))
    with pytest.raises(OSError, match="no room"):
        store.write("a", CODE)
    assert not list(folder.iterdir())


def test_a_damaged_file_is_not_taken(folder: Path, store: CodeStore) -> None:
    store.write("a", CODE)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    versions = [whole[:end] for end in range(len(whole))]
    versions += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    for content in [*versions, whole + b"\0"]:
        path.write_bytes(content)
        assert store.read("a") is None
    path.write_bytes(whole)
    assert store.read("a") == CODE


@pytest.mark.parametrize("content", [b"", b"octavo 1 and what is no code"])
def test_a_kernel_whose_file_is_damaged_is_compiled_again(
    folder: Path, store: CodeStore, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jit, "code_store", lambda: store)
    first, second, third = (Kernel(*_argmax.origin, _argmax._build, _argmax._signature) for _ in range(3))
    logits = np.array([0, 3, 2], np.float32)
    arguments = address_of(logits), 3
    assert first.call(*arguments) == 1
    (path,) = folder.iterdir()
    written = path.read_bytes()
    path.write_bytes(content)
    assert second.call(*arguments) == 1
    assert MachineCode.from_bytes(path.read_bytes()).entry == MachineCode.from_bytes(written).entry
    second._build = third._build = lambda: pytest.fail("it was compiled though its code had been kept")
    assert third.call(*arguments) == 1
