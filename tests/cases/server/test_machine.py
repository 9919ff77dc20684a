"""Area machine: the server takes what its container or service may have, and no more."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.api.config import EngineConfig
from engine.model import ServedModel, load_model
from kernels.machine import cpu
from server.cli.main import main
from tests.cases.real import tiny_model
from tests.kernels.machine.control_groups import GIB, V1, V2, version_1, version_2

LIMIT = 64 << 20  # less than the keys and values of eight whole contexts take
CONTEXT = 131072
LayOut = Callable[[Path, str, str, str], None]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the root of the file system, on a machine of 32 cores and 128 GiB."""
    monkeypatch.setattr(cpu, "ROOT", tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(32)))
    monkeypatch.setattr("engine.machine._meminfo_available", lambda: 128 * GIB)
    return tmp_path


def of_version_2(root: Path, group: str, limited: str, seen_from: str) -> None:
    """A process in `group`; the group `limited` has a limit, and the mount shows what is below `seen_from`."""
    below = limited.removeprefix(seen_from).strip("/") or "."
    files: dict[str, str | int] = {
        f"{below}/memory.max": LIMIT,
        f"{below}/memory.current": 0,
        f"{below}/cpu.max": "100000 100000",
    }
    version_2(root, group, files, V2.replace(" / /sys", f" {seen_from} /sys"))


def of_version_1(root: Path, group: str, limited: str, seen_from: str) -> None:
    below = limited.removeprefix(seen_from).strip("/") or "."
    files: dict[str, str | int] = {
        f"memory/{below}/memory.limit_in_bytes": LIMIT,
        f"memory/{below}/memory.usage_in_bytes": 0,
        f"cpu,cpuacct/{below}/cpu.cfs_quota_us": 100000,
        f"cpu,cpuacct/{below}/cpu.cfs_period_us": 100000,
    }
    version_1(root, group, files, V1.replace(" / /sys/fs/cgroup/", f" {seen_from} /sys/fs/cgroup/"))


SCOPE, SLICE, POD = "/system.slice/run-r1.scope", "/system.slice/octavo.service", "/kubepods.slice/kubepods-pod1.slice"
# Each: the process's group, that which has the limits, and the group that the mount shows as its root.
PLACES = {
    "systemd-run": (SCOPE, SCOPE, "/"),
    "a service's drop-in": (SLICE, SLICE, "/"),
    "a slice": (SLICE, "/system.slice", "/"),
    "a group below a service": (f"{SLICE}/worker/one", SLICE, "/"),
    "a user's session": ("/user.slice/user-1.slice/user@1.service/app.slice/a", "/user.slice/user-1.slice", "/"),
    "a container's own namespace": ("/", "/", "/"),
    "a container that made a group": ("/init.scope", "/", "/"),
    "the host's namespace": ("/docker/4b5f", "/docker/4b5f", "/docker/4b5f"),
    "a pod that limits its container": (f"{POD}/cri-1", POD, "/"),
    "a system container": ("/lxc.payload.a/system.slice/x", "/lxc.payload.a", "/"),
}


def loaded(folder: Path) -> ServedModel:
    path = tiny_model(folder, "plain", context=CONTEXT)
    return load_model(str(path), EngineConfig(kv_type="f32"), lambda stage, share: None)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("lay_out", [of_version_1, of_version_2])
def test_doctor_tells_the_limits_of_wherever_the_process_is(
    root: Path, capsys: pytest.CaptureFixture[str], lay_out: LayOut, place: str
) -> None:
    """NB-33: limits stand on the way from the process's own group to the root, in the group or in one above it."""
    lay_out(root, *PLACES[place])
    main(["doctor", "--megabytes", "16"])
    shown = capsys.readouterr().out
    assert "1 usable" in shown and "0.1 GB free" in shown


@pytest.mark.parametrize("lay_out", [of_version_1, of_version_2])
def test_a_model_is_loaded_within_the_limits(root: Path, tmp_path: Path, lay_out: LayOut) -> None:
    """NB-33: half of the host's memory, and a thread for each of its cores."""
    lay_out(root, *PLACES["a group below a service"])
    model = loaded(tmp_path)
    assert model.threads == 1
    assert LIMIT // 4 < model.kv_bytes <= LIMIT // 2


FILE = LIMIT // 4 * 3
STAT = f"anon 4096\nfile {FILE}\nshmem 0\n"
READ_V2: dict[str, str | int] = {"memory.max": LIMIT, "memory.current": FILE + 4096}
READ_V1: dict[str, str | int] = {"memory/memory.limit_in_bytes": LIMIT, "memory/memory.usage_in_bytes": FILE + 4096}


def after_reading(root: Path, version: int, shares: dict[str, int]) -> None:
    """The page cache holds a file, in lists of these lengths."""
    if version == 2:
        lists = "\n".join(f"{name} {size}" for name, size in shares.items())
        version_2(root, "/", {**READ_V2, "memory.stat": f"{STAT}{lists}"})
        return
    lists = "\n".join(f"total_{name} {size}" for name, size in shares.items())
    version_1(root, "/", {**READ_V1, "memory/memory.stat": f"cache {FILE}\n{lists}"})


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("active", [0, FILE // 3, FILE])
def test_a_file_that_was_read_takes_no_memory_from_the_model(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], version: int, active: int
) -> None:
    """NB-32: the page cache is given back when memory is wanted, so a start after `cat` is as one before it."""
    told, sizes = [], []
    after_reading(root, version, {})
    main(["doctor", "--megabytes", "16"])
    assert "0.0 GB free" in capsys.readouterr().out  # were it not told what the page cache holds
    for shares in ({"inactive_file": FILE, "active_file": 0}, {"inactive_file": FILE - active, "active_file": active}):
        after_reading(root, version, shares)
        main(["doctor", "--megabytes", "16"])
        told += re.findall(r"memory +([\d.]+ GB free)", capsys.readouterr().out)
        model = loaded(tmp_path)
        sizes.append((model.kv_bytes, model.context_length))
    assert told == ["0.1 GB free"] * 2 and sizes[0] == sizes[1] and sizes[0][0] > LIMIT // 4


def test_what_lies_in_a_shared_memory_file_system_is_not_free(root: Path, tmp_path: Path) -> None:
    """NB-32: pages of tmpfs are cached, too, but nothing gives them back."""
    after_reading(root, 2, {"shmem": FILE, "inactive_anon": FILE, "inactive_file": 0, "active_file": 0})
    assert loaded(tmp_path).kv_bytes <= LIMIT // 8
