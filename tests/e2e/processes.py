"""Real `octavo` processes: a server on a free port, and commands that are expected to fail."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.server.cli.test_serve import free_port

ROOT = Path(__file__).parents[2]
PATIENCE = 300.0  # seconds for a first start, which compiles


@dataclass(frozen=True)
class Server:
    """A serving process that is ready."""

    url: str
    process: subprocess.Popen[str]


def octavo(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "octavo.py"), *arguments]


@contextmanager
def serving(*arguments: str) -> Iterator[Server]:
    port = free_port()
    command = octavo("serve", *arguments, "--port", str(port))
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(url, process)
        yield Server(url, process)
    finally:
        process.terminate()
        process.wait(timeout=60)


def wait_until_ready(url: str, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"the server did not get ready; exit code {process.poll()}")


def run_to_end(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(octavo(*arguments), capture_output=True, text=True, timeout=PATIENCE)
