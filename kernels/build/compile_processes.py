"""Processes that compile kernels into the store, so that the one which runs them needs no compiler.

No two threads can compile at once, so there are as many processes as cores: all take groups of kernels from one queue,
a pipe with a byte for each group, and tell what is done by another. A lock on the store keeps servers that start at
once from compiling all twice: the second finds what the first has compiled.
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

from kernels.build import code_store
from kernels.machine.cpu import usable_cores
from kernels.build.jit import Kernel
from kernels.build.machine_code import MachineCode
from kernels.build.toolchain import COMPILES_HERE

_WORKER = Path(__file__).with_name("compile_worker.py")
_MOST_PROCESSES = 4  # the longest group takes a quarter of all the time
Groups = Sequence[Sequence[Kernel]]


class CompileError(Exception):
    """A kernel could not be compiled, or its code not be kept."""


def compile_groups(groups: Groups, progress: Callable[[float], None]) -> None:
    """Compile what is not in the store, the groups side by side; `progress` gets the share that is done."""
    if not COMPILES_HERE and _missing(groups):
        progress(0.0)
        with code_store.compile_lock() as lock:
            if missing := _missing(groups):  # still, where there was another who had the lock
                _compile_together(missing, lock, lambda done: progress(done / len(missing)))
    for group in groups:  # and what a process that failed has left
        for kernel in group:
            _ = kernel.address
    progress(1.0)


def compile_alone(kernel: Kernel) -> MachineCode:
    """Compile one kernel in a process of its own; raises CompileError."""
    queue = _queue(1)
    with tempfile.TemporaryFile(dir=code_store.folder()) as errors:
        worker = _start([[kernel]], queue, [], errors)
        os.close(queue)
        worker.wait()
        errors.seek(0)
        told = errors.read().decode(errors="replace").strip().splitlines()
    code = code_store.read(kernel.name)
    if code is None:
        reason = told[-1] if told else "its process died"
        raise CompileError(f"The kernel {kernel.name} could not be compiled ({reason}); report it.")
    return code


def _missing(groups: Groups) -> list[Sequence[Kernel]]:
    return [group for group in groups if not all(kernel.is_compiled for kernel in group)]


def _compile_together(groups: Groups, lock: int, progress: Callable[[int], None]) -> None:
    """Compile all groups; `progress` gets how many are done."""
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

    One that holds the lock too goes on where its server is killed, and the next server waits for it.
    """
    worker = subprocess.Popen(
        [sys.executable, "-P", str(_WORKER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        pass_fds=[queue, *kept],
    )
    request: dict[str, Any] = {
        "store": str(code_store.folder()),
        "queue": queue,
        "tell": tell,
        "groups": [[kernel.origin for kernel in group] for group in groups],
    }
    assert worker.stdin is not None
    with suppress(BrokenPipeError), worker.stdin as pipe:  # one that is gone already leaves its share to the others
        pipe.write(json.dumps(request).encode())
    return worker
