"""Facts about the machine, here and on machines made of files; the cache folder, and to whom its folders are open."""

import stat
from pathlib import Path

import pytest

from engine import machine
from engine.errors import OctavoError
from engine.machine import cache_folder, shared_folder
from kernels.machine.cpu import usable_cores
from kernels.simd.tiers import supported_tiers

GIGABYTE = 1 << 30


def test_the_machine_is_described_as_the_engine_will_use_it() -> None:
    found = machine.describe_machine()
    assert found.supported == supported_tiers() and found.isa == supported_tiers()[0]
    assert found.cores == usable_cores() and found.cores >= 1
    assert found.cpu and found.memory_bytes > 0
    assert found.cache_folder == cache_folder()


def test_bandwidth_is_a_positive_number() -> None:
    assert 0 < machine.measure_bandwidth(threads=1, megabytes=16) < 1e13


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that stands for the root of the file system, on a machine with 8 GB to spare."""
    monkeypatch.setattr(machine, "memory_room", lambda: None)
    monkeypatch.setattr(machine, "Path", lambda path: tmp_path / str(path).lstrip("/"))
    put(tmp_path / "proc/meminfo", f"MemTotal: 1 kB\nMemFree: 1 kB\nMemAvailable:  {8 << 20} kB\n")
    return tmp_path


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_a_limit_the_system_decides(system: Path) -> None:
    assert machine.available_memory() == 8 * GIGABYTE


def test_a_container_whose_system_gives_no_estimate_has_what_is_free_and_cached(system: Path) -> None:
    """NB-32: files that were read count as free there too, but not what lies in memory as a file."""
    told = "MemTotal: 9 kB\nMemFree: 100 kB\nBuffers: 10 kB\nCached: 50 kB\nShmem: 20 kB\nSReclaimable: 5 kB\n"
    put(system / "proc/meminfo", told)
    assert machine.available_memory() == 145 * 1024
    put(system / "proc/meminfo", "MemTotal: 9 kB\nMemFree: 7 kB\nVmallocTotal: rubbish\n\n")
    assert machine.available_memory() == 7 * 1024


@pytest.mark.parametrize(("room", "free"), [(3, 3), (100, 8), (0, 0)])
def test_the_control_groups_bound_the_memory(
    system: Path, monkeypatch: pytest.MonkeyPatch, room: int, free: int
) -> None:
    monkeypatch.setattr(machine, "memory_room", lambda: room * GIGABYTE)
    assert machine.available_memory() == free * GIGABYTE


def test_the_last_level_cache_is_the_largest(system: Path) -> None:
    assert machine.last_level_cache() == 0
    for index, size in enumerate(("32K", "512K", "32M")):
        put(system / f"sys/devices/system/cpu/cpu0/cache/index{index}/size", size + "\n")
    assert machine.last_level_cache() == 32 << 20


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


@pytest.mark.parametrize("chosen", [None, "~/mine", "~nobody-has-this-name/mine"])
def test_a_user_that_the_system_has_no_entry_of_is_told_to_give_a_folder(
    home: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None
) -> None:
    """NB-34: a number without a passwd entry has no home folder, whoever asks for it."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.getuid", lambda: 1000680000)
    if chosen is not None:
        monkeypatch.setenv("OCTAVO_CACHE", chosen)
    with pytest.raises(OctavoError, match="set OCTAVO_CACHE to a folder that you can write to"):
        cache_folder()


def test_a_relative_home_is_taken_from_where_the_server_starts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", "here")
    assert cache_folder() == home / "here" / ".cache" / "octavo"


def test_a_folder_in_a_new_cache_folder_is_made_for_the_owner_alone(home: Path) -> None:
    folder = shared_folder("models")
    assert folder == home / ".cache" / "octavo" / "models"
    assert mode(folder) == mode(folder.parent) == 0o700


@pytest.mark.parametrize(
    ("cache", "models"), [(0o2775, 0o2775), (0o1777, 0o1775), (0o770, 0o770), (0o755, 0o755), (0o1770, 0o1770)]
)
def test_a_folder_in_a_shared_cache_folder_is_as_open_but_to_write_never_to_all(
    home: Path, monkeypatch: pytest.MonkeyPatch, cache: int, models: int
) -> None:
    (home / "shared").mkdir()
    (home / "shared").chmod(cache)
    monkeypatch.setenv("OCTAVO_CACHE", str(home / "shared"))
    assert mode(shared_folder("models")) == models


def test_a_shared_folder_that_is_there_is_left_as_it_is(home: Path) -> None:
    shared_folder("models").chmod(0o777)
    assert mode(shared_folder("models")) == 0o777


@pytest.mark.parametrize("in_the_way", ["file/cache", "link"])
def test_a_cache_folder_that_cannot_be_made_says_why(
    home: Path, monkeypatch: pytest.MonkeyPatch, in_the_way: str
) -> None:
    (home / "file").touch()
    (home / "link").symlink_to(home / "nothing")
    monkeypatch.setenv("OCTAVO_CACHE", str(home / in_the_way))
    with pytest.raises(OctavoError, match=r"cannot be made: .*; set OCTAVO_CACHE"):
        shared_folder("models")
