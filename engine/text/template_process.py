"""The server's side of the template worker: starts it when first needed, talks to it, replaces it when it dies."""

import json
import os
import select
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from engine.errors import EngineFaultError, ModelFileError, TemplateError

WORKER = Path(__file__).with_name("template_worker.py")
WALL_SECONDS = 20.0  # far beyond the worker's own limit of processor time: for a machine that is very busy


class RefusedByTemplateError(TemplateError):
    """The template's own raise_exception, in its own words."""


class BrokenTemplateError(TemplateError):
    """The template cannot be compiled, or fails on these messages."""


class TemplateProcess:
    """One worker process. Calls from several threads take turns; a rendering takes about a millisecond."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def compile(self, source: str) -> None:
        """Raises ModelFileError for a template that cannot be compiled."""
        kind, words = self._ask(source, None)
        if kind != "text":
            raise ModelFileError(
                f"The model's chat template cannot be compiled: {words.rstrip('.')}; use another file."
            )

    def render(self, source: str, variables: Mapping[str, object]) -> str:
        """Raises RefusedByTemplateError, BrokenTemplateError, or TemplateError where a limit is passed."""
        kind, words = self._ask(source, variables)
        if kind == "refused":
            raise RefusedByTemplateError(words or "The chat template refused these messages.")
        if kind == "failed":
            raise BrokenTemplateError(f"The model's chat template failed on these messages: {words.rstrip('.')}.")
        if kind == "limit":
            raise TemplateError(f"The model's chat template cannot be rendered with these messages: {words}.")
        return words

    def variables(self, source: str) -> frozenset[str] | None:
        """The names that a template takes from its caller; None where that cannot be told."""
        kind, words = self._ask(source, None, names=True)
        return frozenset(json.loads(words)) if kind == "text" else None

    def _ask(self, source: str, variables: Mapping[str, object] | None, *, names: bool = False) -> tuple[str, str]:
        """Kind of reply (text, refused, failed, limit) and its words."""
        request = json.dumps({"source": source, "variables": variables, "names": names}).encode() + b"\n"
        with self._lock:
            return self._exchange(request)

    def _exchange(self, request: bytes) -> tuple[str, str]:
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(request)
            process.stdin.flush()
            kind, words = json.loads(_read_line(process))
        except (OSError, EOFError):  # the template broke its process
            _end(process)
            return "limit", "it takes too much time or memory"
        return kind, words

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            if self._process is not None:
                _end(self._process)
            self._process = _start()
            weakref.finalize(self, _end, self._process)
        return self._process


@cache
def shared_process() -> TemplateProcess:
    """The one worker of this server."""
    return TemplateProcess()


def _start() -> subprocess.Popen[bytes]:
    """A session of its own keeps the terminal's Ctrl-C from the worker; it ends when its input closes."""
    try:
        return subprocess.Popen(
            [sys.executable, "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise EngineFaultError(f"The process that renders chat templates cannot be started: {error}.") from error


def _read_line(process: subprocess.Popen[bytes]) -> bytes:
    """Raises EOFError if the worker ended, or does not answer in time."""
    assert process.stdout is not None
    output = process.stdout.fileno()
    poll = select.poll()
    poll.register(output, select.POLLIN)
    deadline = time.monotonic() + WALL_SECONDS
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
