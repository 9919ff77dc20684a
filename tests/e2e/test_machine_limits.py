"""`octavo doctor` in a real control group of one core and one GiB, whose limits stand in the group above its own."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.processes import octavo

GROUPS = Path("/sys/fs/cgroup")
LIMITS_2 = {"memory.max": "1073741824", "cpu.max": "100000 100000"}
LIMITS_1 = {"memory.limit_in_bytes": "1073741824", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "100000"}


def new_groups() -> list[Path]:
    """A limited group with an empty one below, in each hierarchy that is needed; returns the lower ones."""
    name = f"octavo-test-{os.getpid()}"
    if (GROUPS / "cgroup.controllers").exists():
        outer, limits = [GROUPS / name], LIMITS_2
    else:
        outer, limits = [GROUPS / "memory" / name, GROUPS / "cpu" / name], LIMITS_1
    for group in outer:
        group.mkdir()
        for limit, value in limits.items():
            if (group / limit).exists():
                (group / limit).write_text(value)
        (group / "inner").mkdir()
    missing = [limit for limit in limits if not any((group / limit).exists() for group in outer)]
    if missing:
        remove([group / "inner" for group in outer])
        raise FileNotFoundError(f"no {', '.join(missing)}")
    return [group / "inner" for group in outer]


def remove(groups: list[Path]) -> None:
    for group in groups:
        for folder in (group, group.parent):
            with suppress(OSError):
                folder.rmdir()


@pytest.fixture
def groups() -> Iterator[list[Path]]:
    try:
        groups = new_groups()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield groups
    remove(groups)


def inside(groups: list[Path], *command: str) -> str:
    """Run a command in the groups; returns what it writes."""
    enter = "".join(f"echo $$ > {group}/cgroup.procs && " for group in groups)
    script = enter + 'exec "$0" "$@"'
    return subprocess.run(["sh", "-c", script, *command], stdout=subprocess.PIPE, text=True, timeout=300).stdout


def memory_told(groups: list[Path]) -> float:
    """GB."""
    shown = inside(groups, *octavo("doctor", "--megabytes", "16"))
    assert "cores        1 usable" in shown
    told = re.search(r"([0-9.]+) GB free", shown)
    assert told
    return float(told[1])


def test_doctor_tells_the_limits_with_and_without_a_file_that_was_read(groups: list[Path], tmp_path: Path) -> None:
    before = memory_told(groups)
    assert 0.5 < before < 1.1  # 1 GiB is 1.07 GB
    file = tmp_path / "file"
    inside(groups, "dd", "if=/dev/zero", f"of={file}", "bs=1M", "count=700", "conv=fsync", "status=none")
    assert memory_told(groups) == pytest.approx(before, abs=0.11)
