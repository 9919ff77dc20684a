"""Facts about the machine, which `octavo doctor` and the start-up banner tell, and the folder of caches.

Trouble with the folder is an error that a user may read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import OctavoError
from kernels.build import cache_folder as folders
from kernels.build.cache_folder import CacheFolderError
from kernels.build.code_store import code_store
from kernels.machine.cpu import cpu_name, memory_room, usable_cores
from kernels.simd.tiers import supported_tiers


def cache_folder() -> Path:
    """`$OCTAVO_CACHE`, else `$XDG_CACHE_HOME/octavo`, else `~/.cache/octavo`; it need not exist yet."""
    try:
        return folders.cache_folder()
    except folders.CacheFolderError as error:
        raise OctavoError(str(error)) from error


def shared_folder(name: str) -> Path:
    """The folder `name` in the cache folder: made if need be, open to those the cache folder is open to."""
    try:
        return folders.shared_folder(name)
    except folders.CacheFolderError as error:
        raise OctavoError(str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What this machine has for us."""

    cpu: str
    isa: str  # the best tier
    supported: tuple[str, ...]
    cores: int  # that this process may use
    memory_bytes: int  # free for us now
    cache_folder: Path
    kernels: str  # the folder of the compiled ones, or why they are not kept


def describe_machine() -> Machine:
    """Look at the machine; nothing is measured. Raises OctavoError where no folder can be written to."""
    return Machine(
        cpu=cpu_name(),
        isa=supported_tiers()[0],
        supported=supported_tiers(),
        cores=usable_cores(),
        memory_bytes=available_memory(),
        cache_folder=cache_folder(),
        kernels=_kernels(),
    )


def _kernels() -> str:
    try:
        store = code_store()
        trouble = store.why_not_kept
        return str(store.folder) if trouble is None else f"compiled again at each start. {trouble}"
    except CacheFolderError as error:
        raise OctavoError(str(error)) from error


def available_memory() -> int:
    """Return the bytes that can still be used: the system's estimate, bounded by the limits of our control groups."""
    free = _meminfo_available()
    room = memory_room()
    return free if room is None else min(free, room)


def measure_bandwidth(threads: int, megabytes: int = 256, memory: Sequence[NDArray[np.uint8]] = ()) -> float:
    """Return the read bandwidth of `threads` threads in bytes a second; takes a few tenths of a second.

    What is read is the memory that is given, where it is large enough: for that, no further memory is taken.
    """
    from kernels.run.probes import read_bandwidth
    from kernels.run.team import Team

    team = Team(threads)
    try:
        return read_bandwidth(team, megabytes, memory=memory)
    finally:
        team.stop()


def _meminfo_available() -> int:
    """The system's estimate; in containers whose /proc/meminfo has none, what is free and what is cached of files."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    kibibytes = {fields[0]: int(fields[1]) for fields in lines if len(fields) > 1 and fields[1].isdecimal()}
    available = kibibytes.get("MemAvailable:")
    if available is None:
        told = (kibibytes.get(f"{name}:", 0) for name in ("MemFree", "Buffers", "Cached", "SReclaimable"))
        available = max(0, sum(told) - kibibytes.get("Shmem:", 0))
    return available * 1024


def last_level_cache() -> int:
    """Return the bytes of the largest cache of the first core, or 0 where the system does not tell."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    return max((_size_in_bytes(path.read_text().strip()) for path in sizes), default=0)


def _size_in_bytes(text: str) -> int:
    """Read a size as Linux writes it: 32768K, 32M."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)
