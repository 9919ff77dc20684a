"""Files as Linux shows control groups in them, below a folder that stands for the root of the file system."""

from pathlib import Path

GIB = 1 << 30
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate"
V1 = """31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 / /sys/fs/cgroup/cpuset rw shared:9 - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"""


def lay_out(root: Path, files: dict[str, str | int]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")


def version_2(root: Path, group: str, files: dict[str, str | int], mounts: str = V2) -> None:
    lay_out(root, {"proc/self/cgroup": f"0::{group}", "proc/self/mountinfo": mounts})
    lay_out(root / "sys/fs/cgroup", files)


def version_1(root: Path, group: str, files: dict[str, str | int], mounts: str = V1) -> None:
    groups = f"7:cpu,cpuacct:{group}\n5:cpuset:/\n4:memory:{group}\n1:name=systemd:/elsewhere\n0::/"
    lay_out(root, {"proc/self/cgroup": groups, "proc/self/mountinfo": mounts})
    lay_out(root / "sys/fs/cgroup", files)
