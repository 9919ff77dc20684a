"""The cache folder: where the settings put it, and that what is made there is closed to other users."""

import os
import stat
from pathlib import Path

import pytest

from engine.cache_folder import cache_folder, private_folder
from engine.errors import OctavoError


def mode(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OCTAVO_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_without_settings_it_is_in_the_home_folder(home: Path) -> None:
    assert cache_folder() == home / ".cache" / "octavo"


def test_xdg_cache_home_moves_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "xdg"))
    assert cache_folder() == home / "xdg" / "octavo"


def test_a_relative_xdg_cache_home_is_ignored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == home / ".cache" / "octavo"


def test_octavo_cache_has_the_last_word(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "xdg"))
    monkeypatch.setenv("OCTAVO_CACHE", "~/mine")
    assert cache_folder() == home / "mine"


def test_a_private_folder_and_the_cache_folder_are_made_for_the_owner_alone(home: Path) -> None:
    folder = private_folder("models")
    assert folder == home / ".cache" / "octavo" / "models"
    assert mode(folder) == 0o700
    assert mode(folder.parent) == 0o700


def test_a_private_folder_that_was_open_is_closed_and_keeps_its_files(home: Path) -> None:
    folder = private_folder("models")
    (folder / "file").touch()
    folder.chmod(0o777)
    assert private_folder("models") == folder
    assert mode(folder) == 0o700
    assert (folder / "file").exists()


def test_a_folder_of_another_user_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private_folder("kernels")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(OctavoError, match="belongs to another user; set OCTAVO_CACHE"):
        private_folder("kernels")


def test_a_cache_folder_that_cannot_be_made_says_why(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").touch()
    monkeypatch.setenv("OCTAVO_CACHE", str(home / "file" / "cache"))
    with pytest.raises(OctavoError, match=r"cannot be made: .*; set OCTAVO_CACHE"):
        private_folder("models")
