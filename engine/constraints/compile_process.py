"""The server's side of the compile worker: starts it when first needed, talks to it, replaces it when it dies."""

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

from engine.errors import EngineFaultError

WORKER = Path(__file__).with_name("compile_worker.py")
WALL_SECONDS = 20.0  # far beyond the worker's own limit of processor time: for a machine that is very busy
TOO_COMPLEX = "it is too complex: it takes too much time or memory to compile"


class CompileProcess:
    """One worker process for one vocabulary. Calls from several threads take turns; most take a few milliseconds."""

    def __init__(self, vocabulary: dict[str, object]) -> None:
        self._greeting = json.dumps(vocabulary).encode() + b"\n"
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None  # of that process; also when this object is no more

    def complaint(self, grammar: str) -> str:
        """What is wrong with the grammar; empty if nothing is, so that it may be compiled anywhere."""
        request = json.dumps(grammar).encode() + b"\n"
        with self._lock:
            process = self._running()
            try:
                kind, words = json.loads(_exchange(process, request))
            except (OSError, EOFError):  # the grammar broke its process
                self._end()
                return TOO_COMPLEX
        return "" if kind == "good" else str(words)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = _start(self._greeting)
            self._end = weakref.finalize(self, _end, self._process)
        return self._process


def _start(greeting: bytes) -> subprocess.Popen[bytes]:
    """A session of its own keeps the terminal's Ctrl-C from the worker; it ends when its input closes."""
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(greeting)
    except OSError as error:
        raise EngineFaultError(f"The process that compiles grammars cannot be started: {error}.") from error
    return process


def _exchange(process: subprocess.Popen[bytes], request: bytes) -> bytes:
    """Raises OSError or EOFError if the worker ended, or does not answer in time."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(request)
    process.stdin.flush()
    output = process.stdout.fileno()
    poll = select.poll()
    poll.register(output, select.POLLIN)
    deadline = time.monotonic() + WALL_SECONDS
    line = bytearray()
    while not line.endswith(b"\n"):
        wait = deadline - time.monotonic()
        chunk = os.read(output, 1 << 16) if wait > 0 and poll.poll(wait * 1000) else b""
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
