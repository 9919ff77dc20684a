"""A server of this checkout as a process of its own: started, watched from outside, stopped."""

import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx

ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 900.0  # a first start compiles
_STOP_SECONDS = 60.0
_MODEL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server that is ready."""

    url: str
    pid: int
    model: str
    vocabulary: int

    def resident_bytes(self) -> int:
        """Of the server and the processes that it started."""
        return sum(_resident_bytes(pid) for pid in [self.pid, *_children(self.pid)])

    def busy_lanes(self) -> int:
        slots = httpx.get(f"{self.url}/slots", timeout=_MODEL_SECONDS).raise_for_status().json()
        return sum(slot["is_processing"] for slot in slots)

    def metric(self, name: str) -> float | None:
        """A figure of /metrics without labels; None where the server does not tell it."""
        text = httpx.get(f"{self.url}/metrics", timeout=_MODEL_SECONDS).raise_for_status().text
        return metric_of(text, name)

    def wait_until_idle(self, seconds: float = 60.0) -> None:
        """Wait until no lane is busy; raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while self.busy_lanes():
            if time.monotonic() > deadline:
                raise TimeoutError(f"The server is still busy after {seconds:g} s.")
            time.sleep(0.05)


@contextmanager
def serving(model: str, flags: Sequence[str] = ()) -> Iterator[ServerProcess]:
    """Run `octavo serve` with further flags; SystemExit with its last words where it does not get ready."""
    _raise_file_limit()
    port = free_port()
    command = [sys.executable, str(ROOT / "octavo.py"), "serve", model, "--port", str(port), *flags]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_ready(url, process, log)
            card = httpx.get(f"{url}/v1/models", timeout=_MODEL_SECONDS).raise_for_status().json()["data"][0]
            yield ServerProcess(url, process.pid, card["id"], card["meta"]["n_vocab"])
        finally:
            process.terminate()
            process.wait(timeout=_STOP_SECONDS)


def metric_of(text: str, name: str) -> float | None:
    """A figure without labels in the Prometheus text format."""
    match = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(match[1]) if match else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _raise_file_limit() -> None:
    """A connection is a file, and the server inherits our limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if httpx.get(f"{url}/ready").is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    log.seek(0)
    raise SystemExit(f"The server did not get ready: {log.read()[-2000:].decode(errors='replace').strip()}")


def _children(pid: int) -> list[int]:
    """Of all threads, and theirs in turn."""
    found: list[int] = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in listed.read_text().split()]
        except OSError:  # the thread has just ended
            continue
        for child in children:
            found += [child, *_children(child)]
    return found


def _resident_bytes(pid: int) -> int:
    """0 of a process that has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    match = re.search(r"^VmRSS:\s+(\d+) kB$", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else 0
