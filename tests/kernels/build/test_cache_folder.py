"""Folders for compiled code: only where nobody else could put code of theirs."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from kernels.build.cache_folder import CacheFolderError, private_folder, temporary_private_folder

STRANGER = 12345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders to others")


def mode(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o755)
    monkeypatch.setenv("OCTAVO_CACHE", str(folder))
    return folder


def test_a_private_folder_is_made_for_its_owner_alone(cache: Path) -> None:
    assert private_folder("kernels") == cache / "kernels"
    assert mode(cache / "kernels") == 0o700


def test_one_that_others_could_read_is_closed_and_keeps_its_files(cache: Path) -> None:
    folder = private_folder("kernels")
    (folder / "file").touch()
    folder.chmod(0o755)
    assert private_folder("kernels") == folder and mode(folder) == 0o700 and (folder / "file").exists()


@pytest.mark.parametrize("open_mode", [0o770, 0o702, 0o777])
def test_one_that_others_could_write_to_is_refused(cache: Path, open_mode: int) -> None:
    private_folder("kernels").chmod(open_mode)
    with pytest.raises(CacheFolderError, match=f"could write to the cache folder {cache}/kernels; remove it"):
        private_folder("kernels")


@pytest.mark.parametrize("open_mode", [0o775, 0o2775, 0o777, 0o707])
def test_a_folder_above_in_which_others_can_swap_it_is_refused(cache: Path, open_mode: int) -> None:
    cache.chmod(open_mode)
    with pytest.raises(CacheFolderError, match=f"since they can write to {cache}; set OCTAVO_CACHE"):
        private_folder("kernels")
    assert not (cache / "kernels").exists()
    cache.chmod(0o755)
    cache.parent.chmod(open_mode)
    with pytest.raises(CacheFolderError, match=f"since they can write to {cache.parent}; set OCTAVO_CACHE"):
        private_folder("kernels")


@pytest.mark.parametrize("open_mode", [0o1777, 0o1770, 0o3775])
def test_in_a_sticky_folder_others_cannot_swap_it(cache: Path, open_mode: int) -> None:
    cache.chmod(open_mode)
    assert private_folder("kernels") == cache / "kernels"


@needs_root
def test_a_folder_above_that_belongs_to_another_is_refused_sticky_or_not(cache: Path) -> None:
    for open_mode in (0o700, 0o1777):
        os.chown(cache, STRANGER, -1)
        cache.chmod(open_mode)
        with pytest.raises(CacheFolderError, match=f"since they can write to {cache}"):
            private_folder("kernels")


@needs_root
def test_where_the_name_is_anothers_a_folder_of_our_own_is_made_beside(cache: Path) -> None:
    os.chown(private_folder("kernels"), STRANGER, -1)
    assert private_folder("kernels") == cache / "kernels-0"
    os.chown(cache / "kernels-0", STRANGER, -1)
    with pytest.raises(CacheFolderError, match="belongs to another user; set OCTAVO_CACHE"):
        private_folder("kernels")


@needs_root
def test_another_users_link_is_not_followed_to_a_folder_of_ours(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir(mode=0o755)
    cache.chmod(0o1777)
    for name in ("kernels", "kernels-0"):
        (cache / name).symlink_to(tmp_path / "ours")
        os.chown(cache / name, STRANGER, -1, follow_symlinks=False)
        if name == "kernels":
            assert private_folder("kernels") == cache / "kernels-0"
            (cache / "kernels-0").rmdir()
    with pytest.raises(CacheFolderError, match="belongs to another user; set OCTAVO_CACHE"):
        private_folder("kernels")
    assert mode(tmp_path / "ours") == 0o755


def test_a_link_is_followed_once_and_then_left_out(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (cache / "kernels").symlink_to(tmp_path / "elsewhere")
    assert private_folder("kernels") == tmp_path / "elsewhere"


def test_a_link_to_where_others_can_write_is_refused(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "kernels").mkdir(mode=0o700)
    (tmp_path / "open").chmod(0o777)
    (cache / "kernels").symlink_to(tmp_path / "open" / "kernels")
    with pytest.raises(CacheFolderError, match=f"since they can write to {tmp_path}/open"):
        private_folder("kernels")


def test_a_temporary_folder_is_not_made_where_others_could_swap_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(cache))
    folder = temporary_private_folder("octavo-test-")
    assert folder.parent == cache and mode(folder) == 0o700
    cache.chmod(0o777)
    folder = temporary_private_folder("octavo-test-")
    folder.rmdir()
    assert folder.parent == Path("/dev/shm")
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **others: (_ for _ in ()).throw(OSError("no room")))
    with pytest.raises(CacheFolderError, match="only this user can write to; set OCTAVO_CACHE"):
        temporary_private_folder("octavo-test-")
