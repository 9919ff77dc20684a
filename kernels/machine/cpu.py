"""What the processor has, and what the control groups of this process leave of the machine: features, cores, memory.

Features and names are those of Linux's /proc/cpuinfo. Control groups (cgroups of versions 1 and 2) limit memory and
processor time. A limit holds for a group and for all groups below it, so the smallest limit on the way from the
process's own group up to the root counts. `/proc/self/cgroup` says in which group the process is, for each hierarchy,
and `/proc/self/mountinfo` where the hierarchies are mounted (man 7 cgroups, man 5 proc). In a container often only part
of a hierarchy is mounted.
"""

import ctypes
import functools
import os
import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

ROOT = Path("/")  # of the file system; tests put a folder in its place
_GIVEN_BACK = ("inactive_file", "active_file", "slab_reclaimable")  # in memory.stat; tmpfs counts as anonymous memory
_NO_LIMIT = 1 << 62  # version 1 gives some number near 2^63 where there is no limit


def memory_room() -> int | None:
    """Return the bytes that this process can still take; None where no group has a limit.

    Memory that a group gives back before it reaches its limit counts as free: cached files, above all.
    """
    return min((room for folder in _folders("memory") if (room := _room(folder)) is not None), default=None)


def processor_quota() -> float | None:
    """Return how many cores' time this process gets; None where no group has a limit."""
    return min((quota for folder in _folders("cpu") if (quota := _quota(folder)) is not None), default=None)


def _folders(controller: str) -> Iterator[Path]:
    """The visible folders of the process's groups that may limit what `controller` controls."""
    groups = _groups(controller)
    for line in _lines("proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        places, kinds = before.split(" "), after.split(" ")
        if len(places) < 5 or len(kinds) < 3:
            continue
        is_ours = kinds[0] == "cgroup2" or (kinds[0] == "cgroup" and controller in kinds[2].split(","))
        if is_ours and kinds[0] in groups:
            mounted, mount_point = _unescaped(places[3]), _unescaped(places[4])
            yield from _way_up(groups[kinds[0]], mounted, ROOT / mount_point.lstrip("/"))


def _groups(controller: str) -> dict[str, str]:
    """The process's group by type of file system: `cgroup`, that is version 1, and `cgroup2`."""
    groups = {}
    for line in _lines("proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controller in controllers.split(","):
            groups["cgroup"] = group
        elif number == "0" and not controllers:
            groups["cgroup2"] = group
    return groups


def _way_up(group: str, mounted: str, mount_point: Path) -> Iterator[Path]:
    """The folders from a group's own up to the mount point, which shows the group `mounted` and those below."""
    if set(PurePosixPath(mounted).parts) == {"/", ".."}:
        yield mount_point  # above the root of our namespace: the names between are hidden
        return
    if not PurePosixPath(group).is_relative_to(mounted) or ".." in PurePosixPath(group).parts:
        return
    below = PurePosixPath(group).relative_to(mounted)
    for part in (below, *below.parents):
        yield mount_point / part


def _room(folder: Path) -> int | None:
    """The bytes left to one group; None without a limit."""
    version_2 = [_number(folder / "memory.max"), _number(folder / "memory.high")]
    is_version_1 = version_2 == [None, None]
    told = _table(folder / "memory.stat")
    # In version 1 a group also tells the smallest limit of those above it, which a container may not see.
    version_1 = [_number(folder / "memory.limit_in_bytes"), told.get("hierarchical_memory_limit")]
    limit = min([limit for limit in (*version_2, *version_1) if limit is not None], default=_NO_LIMIT)
    if limit >= _NO_LIMIT:
        return None
    usage = _number(folder / ("memory.usage_in_bytes" if is_version_1 else "memory.current")) or 0
    prefix = "total_" if is_version_1 else ""  # with the groups below, as the usage is
    given_back = sum(told.get(prefix + name, 0) for name in _GIVEN_BACK)
    return max(0, min(limit, limit - usage + given_back))


def _quota(folder: Path) -> float | None:
    """The cores' time of one group; None without a limit."""
    try:
        quota, period = map(int, (folder / "cpu.max").read_text().split())
    except (OSError, ValueError):  # not there, or "max"
        quota, period = _number(folder / "cpu.cfs_quota_us") or 0, _number(folder / "cpu.cfs_period_us") or 0
    return quota / period if quota > 0 and period > 0 else None


def _number(path: Path) -> int | None:
    """The number in a file; None where there is none, as in `max` and -1."""
    try:
        text = path.read_text().strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isascii() and text.isdigit() else None


def _table(path: Path) -> dict[str, int]:
    """The lines of a file that are a name and a number; other lines are passed over."""
    fields = [line.split() for line in _lines(path)]
    return {
        field[0]: int(field[1]) for field in fields if len(field) == 2 and field[1].isascii() and field[1].isdigit()
    }


def _lines(path: str | Path) -> list[str]:
    try:
        return (ROOT / path).read_text(errors="surrogateescape").split("\n")
    except OSError:
        return []


def _unescaped(path: str) -> str:
    """A path of mountinfo, which writes blanks and backslashes as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18  # Linux x86-64, asm/prctl.h


def features() -> frozenset[str]:
    """Return the names (Linux's) of the instruction-set extensions that the processor and the system allow."""
    return frozenset(_first_processor().get("flags", "").split())


def description() -> str:
    """Return everything by which a compiler may choose instructions."""
    told = _first_processor()
    keys = ("vendor_id", "cpu family", "model", "stepping", "flags")
    return "\n".join([platform.machine(), *(told.get(key, "") for key in keys)])


@functools.cache
def _first_processor() -> Mapping[str, str]:
    """The first processor's lines of /proc/cpuinfo; empty where there is no such file."""
    told: dict[str, str] = {}
    try:
        with Path("/proc/cpuinfo").open() as lines:
            for line in lines:
                if not line.strip():  # the second processor begins
                    break
                key, _, value = line.partition(":")
                told[key.strip()] = value.strip()
    except OSError:
        pass
    return told


@functools.cache
def matrix_tiles_permitted() -> bool:
    """Ask Linux, once a process, for the use of int8 matrix tiles; False where the system does not allow them."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0)


def has_half_instructions() -> bool:
    """Return whether the processor converts between float32 and half precision by itself."""
    return "f16c" in features()


def cpu_name() -> str:
    """Return the processor's own name where the system tells it."""
    return _first_processor().get("model name") or platform.processor() or platform.machine()


def usable_cores() -> int:
    """Return how many cores this process may keep busy: its affinity, bounded by the quota of its control groups."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = processor_quota()
    return allowed if quota is None else max(1, min(allowed, int(quota)))
