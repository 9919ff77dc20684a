"""What the processor has, and the cores, memory and time that control groups leave to this process."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import machine
from kernels.machine import cpu
from server.cli.main import main
from tests.kernels.machine.control_groups import GIB, V1, V2, lay_out, version_1, version_2


def test_the_processor_has_a_name() -> None:
    assert cpu.cpu_name()


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder that stands for the root of the file system, on a machine of four cores."""
    cpu._first_processor.cache_clear()
    monkeypatch.setattr(cpu, "Path", lambda path: tmp_path / str(path).lstrip("/"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 5}, raising=False)
    yield tmp_path
    cpu._first_processor.cache_clear()


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(("quota", "cores"), [(None, 4), (2.0, 2), (1.5, 1), (0.2, 1), (9.0, 4)])
def test_cores_are_bounded_by_the_affinity_and_the_quota(
    system: Path, monkeypatch: pytest.MonkeyPatch, quota: float | None, cores: int
) -> None:
    monkeypatch.setattr(cpu, "processor_quota", lambda: quota)
    assert cpu.usable_cores() == cores


def test_a_name_is_found_without_cpuinfo(system: Path) -> None:
    assert cpu.cpu_name() and not cpu.features()


def test_the_first_processor_of_cpuinfo_counts(system: Path) -> None:
    first = "processor\t: 0\nmodel name\t: Abacus 3000: Gold\nflags\t\t: avx2 fma f16c\n"
    put(system / "proc/cpuinfo", first + "\n" + first.replace("Gold", "Lead").replace("avx2", "sse2"))
    assert cpu.cpu_name() == "Abacus 3000: Gold"
    assert cpu.features() == {"avx2", "fma", "f16c"}
    here = cpu.description()
    cpu._first_processor.cache_clear()
    put(system / "proc/cpuinfo", first.replace("avx2", "avx2 avx512f"))
    assert cpu.description() != here


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the root of the file system."""
    monkeypatch.setattr(cpu, "ROOT", tmp_path)
    return tmp_path


def test_a_machine_without_control_groups_has_no_limits(root: Path) -> None:
    assert cpu.memory_room() is None and cpu.processor_quota() is None


def test_the_root_group_of_version_2_has_no_limit_files(root: Path) -> None:
    version_2(root, "/", {"cgroup.controllers": "cpu memory", "memory.stat": "inactive_file 4096"})
    assert cpu.memory_room() is None and cpu.processor_quota() is None


@pytest.mark.parametrize(
    ("files", "room"),
    [
        ({"memory.max": "max", "memory.current": 0}, None),
        ({"memory.max": 3 * GIB, "memory.current": GIB}, 2 * GIB),
        ({"memory.max": 3 * GIB, "memory.high": 2 * GIB, "memory.current": GIB}, GIB),
        ({"memory.max": "max", "memory.high": 2 * GIB, "memory.current": GIB}, GIB),
        ({"memory.max": GIB, "memory.current": 2 * GIB}, 0),
        ({"memory.max": 0, "memory.current": 0}, 0),
        ({"memory.max": GIB}, GIB),  # the usage is hidden
        ({"memory.max": "rubbish", "memory.current": GIB}, None),
        ({"memory.max": GIB, "memory.current": "rubbish", "memory.stat": "inactive_file\nactive_file x\n\n1"}, GIB),
    ],
)
def test_a_limit_of_version_2_leaves_so_much_memory(root: Path, files: dict[str, str | int], room: int | None) -> None:
    version_2(root, "/", files)
    assert cpu.memory_room() == room


def test_files_that_were_read_count_as_free_and_shared_memory_does_not(root: Path) -> None:
    stat = f"anon 4096\nfile {GIB}\nshmem {GIB // 2}\ninactive_file {GIB // 4}\nactive_file {GIB // 8}"
    version_2(root, "/", {"memory.max": 2 * GIB, "memory.current": 3 * GIB // 2, "memory.stat": stat})
    assert cpu.memory_room() == GIB // 2 + GIB // 4 + GIB // 8


def test_what_can_be_given_back_never_lifts_the_limit(root: Path) -> None:
    version_2(root, "/", {"memory.max": GIB, "memory.current": 4096, "memory.stat": f"inactive_file {2 * GIB}"})
    assert cpu.memory_room() == GIB


def test_the_smallest_limit_on_the_way_to_the_root_counts(root: Path) -> None:
    version_2(
        root,
        "/system.slice/octavo.service/worker",
        {
            "system.slice/memory.max": 5 * GIB,
            "system.slice/memory.current": 4 * GIB,  # of all that run there
            "system.slice/cpu.max": "400000 100000",
            "system.slice/octavo.service/memory.max": 2 * GIB,
            "system.slice/octavo.service/memory.current": 0,
            "system.slice/octavo.service/cpu.max": "150000 100000",
            "system.slice/octavo.service/worker/memory.max": "max",
            "system.slice/octavo.service/worker/cpu.max": "max 100000",
            "user.slice/memory.max": 4096,  # of others
            "user.slice/cpu.max": "1000 100000",
        },
    )
    assert cpu.memory_room() == GIB and cpu.processor_quota() == 1.5


def test_a_container_that_sees_its_own_group_as_the_root(root: Path) -> None:
    version_2(root, "/", {"memory.max": 2 * GIB, "memory.current": 0, "cpu.max": "100000 100000"})
    assert cpu.memory_room() == 2 * GIB and cpu.processor_quota() == 1.0


def test_a_container_in_the_namespace_of_the_host(root: Path) -> None:
    mounts = V2.replace(" / /sys", " /docker/4b5f /sys")
    version_2(root, "/docker/4b5f/inner", {"cpu.max": "100000 100000", "inner/memory.max": GIB}, mounts)
    assert cpu.memory_room() == GIB and cpu.processor_quota() == 1.0


def test_a_mount_of_somebody_elses_group_says_nothing(root: Path) -> None:
    version_2(root, "/docker/4b5f", {"cpu.max": "100000 100000"}, V2.replace(" / /sys", " /docker/other /sys"))
    assert cpu.processor_quota() is None


def test_a_mount_from_above_the_namespace_tells_its_own_limits(root: Path) -> None:
    version_2(root, "/", {"cpu.max": "100000 100000"}, V2.replace(" / /sys", " /../.. /sys"))
    assert cpu.processor_quota() == 1.0


def test_a_group_that_is_not_to_be_seen_leaves_those_above(root: Path) -> None:
    version_2(root, "/docker/gone (deleted)", {"cpu.max": "300000 100000", "docker/cpu.max": "200000 100000"})
    assert cpu.processor_quota() == 2.0


def test_mount_points_may_have_blanks(root: Path) -> None:
    lay_out(root, {"proc/self/cgroup": "0::/my group"})
    lay_out(root, {"proc/self/mountinfo": r"30 23 0:26 / /mnt/all\040my\134groups rw - cgroup2 cgroup2 rw"})
    lay_out(root / "mnt/all my\\groups/my group", {"cpu.max": "200000 100000"})
    assert cpu.processor_quota() == 2.0


@pytest.mark.parametrize("rubbish", ["", "rubbish", "1 2 3", "1 2 0:1 / /x rw - cgroup2", "\udcff - \udcff"])
def test_rubbish_in_the_tables_is_passed_over(root: Path, rubbish: str) -> None:
    version_2(root, "/", {"cpu.max": "200000 100000"})
    for name in ("cgroup", "mountinfo"):
        path = root / "proc/self" / name
        path.write_text(f"{rubbish}\n{path.read_text()}", errors="surrogateescape")
    assert cpu.processor_quota() == 2.0


@pytest.mark.parametrize("quota", ["max 100000", "rubbish", "1 2 3", "100000 0", "-1 100000", ""])
def test_what_is_no_quota_of_version_2_limits_nothing(root: Path, quota: str) -> None:
    version_2(root, "/", {"cpu.max": quota})
    assert cpu.processor_quota() is None


def test_the_smallest_limit_of_version_1_counts(root: Path) -> None:
    none = 9223372036854771712
    version_1(
        root,
        "/docker/4b5f",
        {
            "memory/memory.limit_in_bytes": none,
            "memory/memory.usage_in_bytes": 30 * GIB,
            "memory/docker/memory.limit_in_bytes": 2 * GIB,
            "memory/docker/memory.usage_in_bytes": GIB,
            "memory/docker/memory.stat": f"inactive_file 0\ntotal_inactive_file {GIB // 2}\ntotal_active_file 4096",
            "memory/docker/4b5f/memory.limit_in_bytes": none,
            "memory/docker/4b5f/memory.usage_in_bytes": GIB,
            "cpu,cpuacct/cpu.cfs_quota_us": -1,
            "cpu,cpuacct/cpu.cfs_period_us": 100000,
            "cpu,cpuacct/docker/cpu.cfs_quota_us": 250000,
            "cpu,cpuacct/docker/cpu.cfs_period_us": 100000,
            "cpuset/cpu.cfs_quota_us": 1,
        },
    )
    assert cpu.memory_room() == GIB + GIB // 2 + 4096 and cpu.processor_quota() == 2.5


def test_a_limit_above_what_a_container_sees_of_version_1_is_told_by_its_own_group(root: Path) -> None:
    stat = f"hierarchical_memory_limit {2 * GIB}\ntotal_inactive_file 4096\ntotal_active_file \u00b2"
    version_1(
        root,
        "/",
        {
            "memory/memory.limit_in_bytes": 9223372036854771712,
            "memory/memory.usage_in_bytes": GIB,
            "memory/memory.stat": stat,
        },
    )
    assert cpu.memory_room() == GIB + 4096


@pytest.mark.parametrize("limit", [9223372036854771712, (1 << 63) - 1, -1, "rubbish"])
def test_what_is_no_limit_of_version_1_limits_nothing(root: Path, limit: str | int) -> None:
    version_1(root, "/", {"memory/memory.limit_in_bytes": limit, "memory/memory.usage_in_bytes": GIB})
    assert cpu.memory_room() is None


def test_a_container_of_version_1_in_the_namespace_of_the_host(root: Path) -> None:
    mounts = V1.replace(" / /sys/fs/cgroup/", " /docker/4b5f /sys/fs/cgroup/")
    files: dict[str, str | int] = {"memory/memory.limit_in_bytes": GIB, "cpu,cpuacct/cpu.cfs_quota_us": 50000}
    version_1(root, "/docker/4b5f", files | {"cpu,cpuacct/cpu.cfs_period_us": 100000}, mounts)
    assert cpu.memory_room() == GIB and cpu.processor_quota() == 0.5


def test_hybrid_machines_have_each_controller_in_one_of_the_versions(root: Path) -> None:
    mounts = V1 + "\n" + V2.replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified ")
    files: dict[str, str | int] = {"memory/group/memory.limit_in_bytes": GIB, "unified/cpu.max": "100000 100000"}
    version_1(root, "/group", files, mounts)
    assert cpu.memory_room() == GIB and cpu.processor_quota() == 1.0


def test_doctor_tells_what_the_groups_leave(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group = "system.slice/octavo.service"
    stat = f"inactive_file {GIB // 2}"
    files: dict[str, str | int] = {f"{group}/memory.max": GIB, f"{group}/memory.current": 600 << 20}
    version_2(root, f"/{group}", files | {f"{group}/memory.stat": stat, f"{group}/cpu.max": "100000 100000"})
    assert machine.available_memory() == GIB - (600 << 20) + GIB // 2
    main(["doctor", "--megabytes", "16"])
    shown = capsys.readouterr().out
    assert "1 usable" in shown and "1.0 GB free" in shown
