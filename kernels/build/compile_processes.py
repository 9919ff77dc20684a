"""Processes that compile kernels into the store, so that the one which runs them needs no compiler.

No two threads can compile at once, so there are as many processes as cores. All take groups of kernels from one queue,
a pipe with a byte for each group, and tell by another pipe what is done. A process runs `jit.compile_queue`.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from kernels.build.code_store import code_store
from kernels.build.machine_code import MachineCode
from kernels.machine.cpu import usable_cores

# Numba first: kernels/ compiles in a process that has imported Numba before. Arguments: the folder that holds kernels/.
_WORKER = "import numba, sys; sys.path.insert(0, sys.argv[1]); from kernels.build import jit; jit.compile_queue()"
_ROOT = Path(__file__).parents[2]
_MOST_PROCESSES = 4  # the longest group takes a quarter of all the time
Origin = tuple[str, str, tuple[int, ...] | None]  # how another process finds a kernel: see jit.find
Groups = Sequence[Sequence[Origin]]


class CompileError(Exception):
    """A kernel could not be compiled, or its code not be kept."""


def compile_alone(name: str, origin: Origin) -> MachineCode:
    """Compile one kernel in a process of its own; raises CompileError."""
    queue, store = _queue(1), code_store()
    with tempfile.TemporaryFile(dir=store.folder) as errors:
        worker = _start([[origin]], queue, [], errors)
        os.close(queue)
        worker.wait()
        errors.seek(0)
        told = errors.read().decode(errors="replace").strip().splitlines()
    code = store.read(name)
    if code is None:
        reason = told[-1] if told else "its process died"
        raise CompileError(f"The kernel {name} could not be compiled ({reason}); report it.")
    return code


def compile_together(groups: Groups, lock: int, progress: Callable[[int], None]) -> None:
    """Compile all groups, side by side; `progress` gets how many are done. lock: a descriptor that the processes keep.

    A process that fails leaves kernels out.
    """
    queue = _queue(len(groups))
    done, tell = os.pipe()
    workers = [
        _start(groups, queue, [lock, tell], subprocess.DEVNULL, tell)
        for _ in range(min(usable_cores(), _MOST_PROCESSES, len(groups)))
    ]
    os.close(queue)
    os.close(tell)
    count = 0
    while told := os.read(done, len(groups)):
        count += len(told)
        progress(count)
    os.close(done)
    for worker in workers:
        worker.wait()


def _queue(groups: int) -> int:
    """A pipe that holds the number of each group; returns the end to read from."""
    queue, numbers = os.pipe()
    os.write(numbers, bytes(range(groups)))
    os.close(numbers)
    return queue


def _start(
    groups: Groups, queue: int, kept: Sequence[int], errors: IO[bytes] | int, tell: int | None = None
) -> "subprocess.Popen[bytes]":
    """Start a process that compiles from a queue.

    One that has the lock among the descriptors it keeps goes on where its server is killed, and the next server waits
    for it.
    """
    worker = subprocess.Popen(
        [sys.executable, "-P", "-c", _WORKER, str(_ROOT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        pass_fds=[queue, *kept],
    )
    request: dict[str, Any] = {"store": str(code_store().folder), "queue": queue, "tell": tell, "groups": groups}
    assert worker.stdin is not None
    with suppress(BrokenPipeError), worker.stdin as pipe:  # one that is gone already leaves its share to the others
        pipe.write(json.dumps(request).encode())
    return worker
