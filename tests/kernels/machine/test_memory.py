"""Which memory has huge pages: the weights, and not what grows while answers run."""

from pathlib import Path

import numpy as np
import pytest

from kernels.machine.memory import Arena, zeroed


@pytest.mark.parametrize(("huge_pages", "flag"), [(True, "hg"), (False, "nh")])
def test_an_array_asks_the_system_for_its_pages(huge_pages: bool, flag: str) -> None:
    array = zeroed((3, 1 << 20), np.uint8, huge_pages=huge_pages)
    assert array.shape == (3, 1 << 20) and not array.any()
    if not Path("/sys/kernel/mm/transparent_hugepage").exists():
        pytest.skip("This system has no huge pages.")
    assert flag in _flags(array.ctypes.data)


def test_an_arena_tells_where_all_that_it_gave_lies() -> None:
    arena = Arena()
    pieces = [arena.zeroed((1000,)), arena.zeroed((64 << 20,)), arena.zeroed((100,))]
    for number, piece in enumerate(pieces):
        piece[:] = number + 1
    assert [int(used.astype(bool).sum()) for used in arena.used] == [piece.size for piece in pieces]


def _flags(address: int) -> list[str]:
    """What the kernel notes of the mapping that holds an address (proc(5), VmFlags)."""
    is_inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first:
            begin, end = (int(part, 16) for part in first.split("-"))
            is_inside = begin <= address < end
        elif is_inside and first == "VmFlags:":
            return line.split()[1:]
    return []


@pytest.mark.parametrize("shape", [(3,), (5, 7), (2, 3, 4096)])
def test_zeroed_memory_is_zero_writable_and_of_the_right_shape(shape: tuple[int, ...]) -> None:
    array = zeroed(shape, np.float32)
    assert array.shape == shape and array.dtype == np.float32 and not array.any()
    array[...] = 1
    assert array.sum() == np.prod(shape)
