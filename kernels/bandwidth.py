"""Measures how fast the threads read memory: the limit of decoding for one user.

Each thread takes blocks of 1 MiB and sums them with eight accumulators, as wide as the processor loads. The buffer
should be a few times the last-level cache, or the cache is measured.
"""

import time
from typing import Any

import numpy as np

from kernels.jit import KERNEL_SIGNATURE, address, kernel
from kernels.memory import zeroed
from kernels.program import Program, claim_task, op_record, record_at
from kernels.simd import load_f32x16, reduce_add, splat_f32x16, store_f32
from kernels.team import Team

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
    """A buffer of `megabytes` MiB, and the program by which a team reads it."""

    def __init__(self, team: Team, megabytes: int) -> None:
        self._team = team
        self._buffer = zeroed((megabytes * _BLOCK,), np.uint8)
        self._buffer[::4096] = 0  # make every page real: unwritten ones all share one page of zeros
        self._sums = np.zeros(team.threads * 16, np.float32)
        self._program = Program()
        self._program.emit(
            READ,
            address(read_kernel()),
            buffer=self._buffer.ctypes.data,
            blocks=megabytes,
            sums=self._sums.ctypes.data,
        )
        self._program.finish()

    def measure(self) -> float:
        """Read the buffer once; returns bytes a second."""
        begin = time.perf_counter()
        self._team.run(self._program)
        return self._buffer.nbytes / (time.perf_counter() - begin)


def read_bandwidth(team: Team, megabytes: int = 256, repeats: int = 5) -> float:
    """Return the median read bandwidth of a team in bytes a second over a buffer of `megabytes` MiB."""
    probe = ReadProbe(team, megabytes)
    return float(np.median([probe.measure() for _ in range(repeats + 1)][1:]))
