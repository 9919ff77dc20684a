"""A child process that answers one JSON line with another: for work that may hang, eat memory or crash.

Its owner starts it when first needed and replaces it when it dies. It ends when its input closes.
"""

import json
import os
import select
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.errors import EngineFaultError

WALL_SECONDS = 20.0  # far beyond a worker's own limit of processor time: for a machine that is very busy


class WorkerBrokenError(Exception):
    """The worker died of a request, or does not answer."""

    def __init__(self, status: int) -> None:
        """`status`: how it ended, as Popen.returncode has it; -SIGKILL where it did not answer."""
        super().__init__(status)
        self.status = status


class WorkerProcess:
    """One worker. Calls from several threads take turns."""

    def __init__(
        self, script: Path, purpose: str, greeting: object = None, *, wall_seconds: float = WALL_SECONDS
    ) -> None:
        """`purpose` completes "The process that ... cannot be started"; a greeting is sent to each new process."""
        self._wall_seconds = wall_seconds
        self._script, self._purpose = script, purpose
        self._greeting = b"" if greeting is None else _line(greeting)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None  # of that process; also when this object is no more

    def ask(self, request: object) -> Any:
        """The reply to a request; raises WorkerBrokenError."""
        line = _line(request)
        with self._lock:
            process = self._running()
            try:
                return json.loads(_exchange(process, line, self._wall_seconds))
            except (OSError, EOFError):
                self._end()
                raise WorkerBrokenError(process.wait()) from None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = self._start()
            self._end = weakref.finalize(self, _end, self._process)
        return self._process

    def _start(self) -> subprocess.Popen[bytes]:
        """A session of its own keeps the terminal's Ctrl-C from the worker."""
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", str(self._script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            assert process.stdin is not None
            process.stdin.write(self._greeting)
        except OSError as error:
            raise EngineFaultError(f"The process that {self._purpose} cannot be started: {error}.") from error
        return process


def _line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _exchange(process: subprocess.Popen[bytes], request: bytes, wall_seconds: float) -> bytes:
    """Raises OSError or EOFError if the worker ended, or does not answer in time."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(request)
    process.stdin.flush()
    output = process.stdout.fileno()
    poll = select.poll()
    poll.register(output, select.POLLIN)
    deadline = time.monotonic() + wall_seconds
    line = bytearray()
    while not line.endswith(b"\n"):
        wait = deadline - time.monotonic()
        chunk = os.read(output, 1 << 20) if wait > 0 and poll.poll(wait * 1000) else b""
        if not chunk:
            raise EOFError
        line += chunk
    return bytes(line)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except BrokenPipeError:
                continue  # half a request was still buffered; nobody reads it any more
