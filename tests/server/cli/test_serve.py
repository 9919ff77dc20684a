"""The serving process: start, banner, signals, exit codes. The engine in it is scripted."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.server.harness import CHAT
from tests.server.wire.test_disconnect import eventually

ROOT = Path(__file__).parents[3]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


class Process:
    """A serving process and what it wrote to stderr."""

    def __init__(self, script: str, drain: float) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "tests.server.scripted.serve", str(self.port), script, str(drain)]
        self.child = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)

    def status(self, path: str) -> int:
        try:
            return httpx.get(self.url + path).status_code
        except httpx.TransportError:
            return 0

    def is_up(self, path: str = "/ready") -> bool:
        return eventually(lambda: self.status(path) == 200)

    def end(self) -> tuple[int, str]:
        _, errors = self.child.communicate(timeout=20)
        return self.child.returncode, errors


@contextmanager
def serving(script: str, drain: float = 5) -> Iterator[Process]:
    process = Process(script, drain)
    try:
        yield process
    finally:
        process.child.kill()
        process.child.wait()
        assert process.child.stderr is not None
        process.child.stderr.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_idle_server_with_zero_after_its_banner(number: signal.Signals) -> None:
    with serving("hello") as process:
        assert process.is_up()
        answer = httpx.post(f"{process.url}/v1/chat/completions", json=CHAT)
        process.child.send_signal(number)
        code, errors = process.end()
    assert (code, answer.status_code) == (0, 200)
    assert "Traceback" not in errors
    for fact in (
        "Loading",
        f"{process.url}/v1",
        "scripted",
        "Q4_1 81%",
        "4096",
        "1,500 MB for keys",
        "18.0 GB/s",
        "200 tok/s",
        "curl ",
    ):
        assert fact in errors
    assert re.search(
        r"octavo\.access: chatcmpl-\w+ request=req_\w+ model=scripted .*prompt=20 .*generated=1 .*end=stop", errors
    )
    assert "Hello" not in errors


def test_the_banners_curl_line_is_whole() -> None:
    with serving("hello") as process:
        assert process.is_up()
        process.child.send_signal(signal.SIGTERM)
        _, errors = process.end()
    line = next(line for line in errors.splitlines() if line.startswith("curl "))
    assert line.endswith("'") and line.count("'") == 4


def test_a_request_outlasting_the_drain_is_ended_and_the_exit_is_clean() -> None:
    with serving("endless", drain=0.2) as process:
        assert process.is_up()
        with httpx.stream("POST", f"{process.url}/v1/chat/completions", json={**CHAT, "stream": True}) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.child.send_signal(signal.SIGTERM)
            received = list(lines)
        code, errors = process.end()
    assert code == 0
    assert '"code":"not_ready"' in received[-4] and received[-2] == "data: [DONE]"
    assert "end=stopped" in errors and "Traceback" not in errors


def test_a_second_signal_forces_the_exit() -> None:
    with serving("endless", drain=60) as process:
        assert process.is_up()
        with httpx.stream("POST", f"{process.url}/v1/chat/completions", json={**CHAT, "stream": True}) as answer:
            lines = answer.iter_lines()  # kept: to drop it would close the connection
            next(lines)
            process.child.send_signal(signal.SIGINT)
            assert eventually(lambda: process.status("/health") == 503)
            process.child.send_signal(signal.SIGINT)
            code, _ = process.end()
    assert code == 130


def test_health_answers_while_the_model_loads_and_a_signal_ends_that_too() -> None:
    with serving("slow") as process:
        assert process.is_up("/health")
        assert process.status("/ready") == 503
        process.child.send_signal(signal.SIGTERM)
        code, errors = process.end()
    assert code == 0 and "Traceback" not in errors


def test_a_load_that_fails_is_one_line_and_exit_code_one() -> None:
    with serving("fail") as process:
        code, errors = process.end()
    assert code == 1
    assert errors.splitlines()[-1] == "octavo: The file is broken; get another."
    assert "Traceback" not in errors


def test_a_port_in_use_is_one_line_before_anything_is_loaded() -> None:
    with serving("hello") as process:
        assert process.is_up()
        command = [sys.executable, "-m", "tests.server.scripted.serve", str(process.port), "hello", "1"]
        second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20)
    assert second.returncode == 1
    assert second.stderr.startswith(f"octavo: Port {process.port} on 127.0.0.1 is in use")
    assert len(second.stderr.splitlines()) == 1
