"""Measures how fast the threads read memory: the limit of decoding for one user.

Each thread takes blocks of 1 MiB and sums them with eight accumulators, as wide as the processor loads. The buffer
should be a few times the last-level cache, or the cache is measured.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.build.jit import KERNEL_SIGNATURE, address, kernel
from kernels.machine.memory import address_of, zeroed
from kernels.run.program import Program, claim_task, op_record, record_at
from kernels.run.team import Team
from kernels.simd.vectors import load_f32x16, reduce_add, splat_f32x16, store_f32

_BLOCK = 1 << 20
READ = op_record(buffer="u8", blocks="i8", sums="u8")


@kernel(KERNEL_SIGNATURE)
def read_kernel() -> Any:
    """Compile the op that reads."""

    def read_op(op, thread, threads):
        read = record_at(op, READ)
        zero = splat_f32x16(np.float32(0))
        a, b, c, d = zero, zero, zero, zero
        e, f, g, h = zero, zero, zero, zero
        while True:
            block = claim_task(op)
            if block >= read.blocks:
                total = reduce_add(((a + b) + (c + d)) + ((e + f) + (g + h)))
                store_f32(total, np.uintp(read.sums) + np.uintp(thread * 64))
                return
            start = np.uintp(read.buffer) + np.uintp(block * 1048576)
            for offset in range(0, 1048576, 512):
                place = start + np.uintp(offset)
                a, b = a + load_f32x16(place), b + load_f32x16(place + np.uintp(64))
                c, d = c + load_f32x16(place + np.uintp(128)), d + load_f32x16(place + np.uintp(192))
                e, f = e + load_f32x16(place + np.uintp(256)), f + load_f32x16(place + np.uintp(320))
                g, h = g + load_f32x16(place + np.uintp(384)), h + load_f32x16(place + np.uintp(448))

    return read_op


class ReadProbe:
    """Memory of `megabytes` MiB, and the program by which a team reads it.

    It is the beginning of the memory that is given, where that is large enough, and memory of its own otherwise.
    """

    def __init__(self, team: Team, megabytes: int, memory: Sequence[np.ndarray] = ()) -> None:
        self._team = team
        self._sums = np.zeros(team.threads * 16, np.float32)
        if sum(_blocks(buffer) for buffer in memory) < megabytes:
            own = zeroed((megabytes * _BLOCK,), np.uint8)
            own[::4096] = 0  # make every page real: unwritten ones all share one page of zeros
            memory = [own]
        self._memory = memory  # kept alive
        self._bytes = megabytes * _BLOCK
        self._program = Program()
        for buffer in memory:
            blocks = min(_blocks(buffer), megabytes)
            if blocks == 0:
                continue
            megabytes -= blocks
            self._program.emit(
                READ, address(read_kernel()), buffer=address_of(buffer), blocks=blocks, sums=self._sums.ctypes.data
            )
        self._program.finish()

    def measure(self) -> float:
        """Read it once; returns bytes a second."""
        begin = time.perf_counter()
        self._team.run(self._program)
        return self._bytes / (time.perf_counter() - begin)


def _blocks(buffer: np.ndarray) -> int:
    return buffer.nbytes // _BLOCK


def read_bandwidth(team: Team, megabytes: int = 256, repeats: int = 5, memory: Sequence[np.ndarray] = ()) -> float:
    """Return the median read bandwidth of a team in bytes a second over `megabytes` MiB: see ReadProbe."""
    probe = ReadProbe(team, megabytes, memory)
    return float(np.median([probe.measure() for _ in range(repeats + 1)][1:]))
