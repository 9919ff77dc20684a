"""The examples that need nothing beyond the test environment, as a user runs them."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.conversation import GREETING_ANSWER, MODEL, WEATHER_ANSWER, conversation_server
from tests.clients.installs import EXAMPLES, run_example
from tests.server.harness import LiveServer


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with conversation_server() as server:
        yield server


def test_the_openai_sdk(server: LiveServer, tmp_path: Path) -> None:
    run = run_example([sys.executable, EXAMPLES / "openai_python.py"], server.url, MODEL, tmp_path)
    assert run.returncode == 0, run.stderr
    answer, usage, streamed = run.stdout.splitlines()
    assert answer == streamed == GREETING_ANSWER
    assert usage.startswith("CompletionUsage(")


def test_the_anthropic_sdk(server: LiveServer, tmp_path: Path) -> None:
    run = run_example([sys.executable, EXAMPLES / "anthropic_python.py"], server.url, MODEL, tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [WEATHER_ANSWER, GREETING_ANSWER]


@pytest.mark.skipif(shutil.which("curl") is None, reason="There is no curl here.")
def test_curl(server: LiveServer, tmp_path: Path) -> None:
    run = run_example(["sh", EXAMPLES / "curl.sh"], server.url, MODEL, tmp_path)
    assert run.returncode == 0, run.stderr
    whole, *stream = [line for line in run.stdout.splitlines() if line and not line.startswith(":")]
    assert json.loads(whole)["choices"][0]["message"]["content"] == GREETING_ANSWER
    assert stream[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in stream[:-1]]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == GREETING_ANSWER
