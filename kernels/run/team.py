"""The worker team: plain threads that stay inside compiled code, spin for a moment, then sleep until the next step."""

import ctypes
import threading
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kernels.build.jit import c_function, njit_inline
from kernels.machine.memory import address_of
from kernels.run.atomics import (
    atomic_add,
    atomic_exchange,
    atomic_load,
    atomic_replace,
    atomic_store,
    pause,
    sched_yield,
    semaphore_post,
    semaphore_wait,
)
from kernels.run.program import SPINS_BEFORE_YIELD, Program, array_at, first_phase, record_at, run_ops, run_ops_timed

# Spins of an idle worker before it sleeps; about 50 microseconds at a pause of 40 cycles.
_SPINS_BEFORE_SLEEP = 4 * SPINS_BEFORE_YIELD
_SEMAPHORE_BYTES = 64  # sem_t takes 32 on 64-bit Linux; a cache line each

# `start` counts runs, `present` the workers that look at the program; each on a cache line of its own.
TEAM_RECORD = np.dtype(
    {
        "names": ["start", "present", "program", "count", "phase", "stopping", "threads", "asleep", "semaphores"],
        "formats": ["i8", "i8", "u8", "i8", "i8", "i8", "i8", "u8", "u8"],
        "offsets": [0, 64, 128, 136, 144, 152, 160, 168, 176],
        "itemsize": 192,
    }
)
_PRESENT_AT, _PHASE_AT, _STOPPING_AT = 64, 144, 152
# In `present` while the program is being changed: far above any number of threads.
_LOCKED = 1 << 32


@njit_inline
def _wait_for_start(team, seen, asleep, semaphore):
    """Return once `start` differs from `seen`: spin first, then sleep."""
    for _ in range(_SPINS_BEFORE_SLEEP):
        if atomic_load(team) != seen:
            return
        pause()
    while atomic_load(team) == seen:
        atomic_exchange(asleep, 1)
        # The starter reads `asleep` after it has written `start`, so one of the two sees the other.
        if atomic_load(team) != seen and atomic_exchange(asleep, 0) == 1:
            return
        while semaphore_wait(semaphore) != 0:
            pass


@c_function("void(uintp, int64)")
def _work(team, thread):
    """A worker's whole life.

    It may come to a run late, or after its end: then the segments are closed, and it goes back to wait.
    """
    record = record_at(team, TEAM_RECORD)
    present = team + np.uintp(_PRESENT_AT)
    asleep = np.uintp(record.asleep) + np.uintp(thread * 64)
    semaphore = np.uintp(record.semaphores) + np.uintp(thread * _SEMAPHORE_BYTES)
    seen = np.int64(0)
    while True:
        _wait_for_start(team, seen, asleep, semaphore)
        if atomic_add(present, 1) < _LOCKED:
            seen = atomic_load(team)
            if atomic_load(team + np.uintp(_STOPPING_AT)) != 0:
                return
            phase = atomic_load(team + np.uintp(_PHASE_AT))
            run_ops(np.uintp(record.program), record.count, phase, thread, record.threads)
        atomic_add(present, -1)


@c_function("void(uintp, uintp, int64)")
def _choose_program(team, program, count):
    """Make a program the one that runs next; waits until no worker looks at the one before."""
    record = record_at(team, TEAM_RECORD)
    present = team + np.uintp(_PRESENT_AT)
    while not atomic_replace(present, 0, _LOCKED):
        sched_yield()
    record.program = program
    record.count = count
    # A worker that comes late, for a run of the program before, must find all segments of this one closed.
    atomic_store(first_phase(program) - 2, team + np.uintp(_PHASE_AT))
    atomic_add(present, -_LOCKED)


@njit_inline
def _start_workers(team):
    """Let the workers run the program, or end where the team is stopping."""
    record = record_at(team, TEAM_RECORD)
    atomic_store(record.start + 1, team)
    for thread in range(1, record.threads):
        if atomic_exchange(np.uintp(record.asleep) + np.uintp(thread * 64), 0) == 1:
            semaphore_post(np.uintp(record.semaphores) + np.uintp(thread * _SEMAPHORE_BYTES))


@njit_inline
def _begin(team):
    """Start a run of the chosen program; returns the phase of its segments."""
    record = record_at(team, TEAM_RECORD)
    phase = first_phase(np.uintp(record.program))
    atomic_store(phase, team + np.uintp(_PHASE_AT))
    _start_workers(team)
    return phase


@c_function("void(uintp)")
def _run(team):
    """Start the workers on the program and run the caller's share of it."""
    record = record_at(team, TEAM_RECORD)
    phase = _begin(team)
    run_ops(np.uintp(record.program), record.count, phase, np.int64(0), record.threads)


@c_function("void(uintp)")
def _start(team):
    """Start the workers on the program; they go on with it until `_join`, and may have done all of it by then."""
    _begin(team)


@c_function("void(uintp)")
def _join(team):
    """Run the caller's share of the program that was started, like a worker that comes late."""
    record = record_at(team, TEAM_RECORD)
    phase = atomic_load(team + np.uintp(_PHASE_AT))
    run_ops(np.uintp(record.program), record.count, phase, np.int64(0), record.threads)


@c_function("void(uintp, uintp)")
def _run_timed(team, times):
    """Like `_run`, with a clock around each op of the caller's; a loop of its own, so that others pay nothing."""
    record = record_at(team, TEAM_RECORD)
    phase = _begin(team)
    of_ops = array_at(times, (record.count, 2), np.int64)
    run_ops_timed(np.uintp(record.program), record.count, phase, record.threads, of_ops)


@c_function("void(uintp)")
def _stop(team):
    """Let the workers end."""
    atomic_store(1, team + np.uintp(_STOPPING_AT))
    _start_workers(team)


# What every team runs.
KERNELS = (_work, _choose_program, _run, _start, _join, _stop)


def _live(memory: tuple[np.ndarray, ...], address: int, thread: int) -> None:
    """Run a worker; the frame keeps the memory that it sleeps on alive, even where its team is forgotten unstopped."""
    _work.call(address, thread)


class Team:
    """`threads` threads (the caller is one of them) that run programs together."""

    def __init__(self, threads: int) -> None:
        assert threads >= 1
        self.threads = threads
        self._program: Program | None = None
        self._asleep = np.zeros(threads * 8 + 8, np.int64)
        self._semaphores = np.zeros((threads + 1) * _SEMAPHORE_BYTES, np.uint8)
        self._storage = np.zeros(TEAM_RECORD.itemsize + 64, np.uint8)
        start = -self._storage.ctypes.data % 64
        self._record = self._storage[start : start + TEAM_RECORD.itemsize].view(TEAM_RECORD)
        self._address = int(self._record.ctypes.data)
        self._record["threads"] = threads
        self._record["asleep"] = self._asleep.ctypes.data
        self._record["semaphores"] = self._semaphores.ctypes.data
        libc = ctypes.CDLL(None)
        for thread in range(threads):
            libc.sem_init(ctypes.c_void_p(self._semaphores.ctypes.data + thread * _SEMAPHORE_BYTES), 0, 0)
        memory = (self._storage, self._asleep, self._semaphores)
        self._workers = [
            threading.Thread(target=_live, args=(memory, self._address, thread), name=f"worker-{thread}", daemon=True)
            for thread in range(1, threads)
        ]
        for worker in self._workers:
            worker.start()

    def run(
        self,
        program: Program,
        times: NDArray[np.int64] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        """Run a program to its end; the caller's thread is thread 0.

        To `times`, [ops, 2], are added the nanoseconds that thread 0 worked at each op, and waited for the others.
        `meanwhile` is called once the others have started, before thread 0 joins them; what it raises comes after the
        end of the program.
        """
        if program is not self._program:
            _choose_program.call(self._address, program.address, len(program))
            self._program = program  # a late worker may still look at it
        if times is not None:
            assert times.shape == (len(program), 2) and times.dtype == np.int64 and meanwhile is None
            _run_timed.call(self._address, address_of(times))
        elif meanwhile is None:
            _run.call(self._address)
        else:
            _start.call(self._address)
            try:
                meanwhile()
            finally:
                _join.call(self._address)

    def stop(self) -> None:
        """End the workers; the team cannot run again."""
        _stop.call(self._address)
        for worker in self._workers:
            worker.join()
