"""The OpenAI SDK for Node leads the scripted conversation; skipped where it cannot be installed."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.conversation import GREETING_ANSWER, MODEL, PARIS, WEATHER_ANSWER, conversation_server
from tests.clients.installs import EXAMPLES, node_with, run_example
from tests.server.harness import LiveServer

PACKAGE = "openai@6.49.0"


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with conversation_server() as server:
        yield server


@pytest.fixture(scope="module")
def scripts(request: pytest.FixtureRequest) -> Path:
    """The examples, where they find the package."""
    cache = request.config.cache
    assert cache is not None
    folder = node_with(PACKAGE, cache)
    for script in EXAMPLES.glob("*.mjs"):
        shutil.copy(script, folder)
    return folder


def test_the_conversation_with_tools_streams_and_data(server: LiveServer, scripts: Path, tmp_path: Path) -> None:
    run = run_example(["node", scripts / "openai_node_tools.mjs"], server.url, MODEL, tmp_path)
    assert run.returncode == 0, run.stderr
    town = f"{{ name: '{PARIS.name}', country: '{PARIS.country}', inhabitants: {PARIS.inhabitants} }}"
    assert run.stdout.splitlines() == [WEATHER_ANSWER, GREETING_ANSWER, town]


def test_an_answer_whole_and_streamed(server: LiveServer, scripts: Path, tmp_path: Path) -> None:
    run = run_example(["node", scripts / "openai_node.mjs"], server.url, MODEL, tmp_path)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert lines[0] == lines[-1] == GREETING_ANSWER
    assert any("completion_tokens" in line for line in lines)


def test_an_unknown_model_is_a_not_found_error(server: LiveServer, scripts: Path, tmp_path: Path) -> None:
    run = run_example(["node", scripts / "openai_node.mjs"], server.url, "nope", tmp_path)
    assert run.returncode != 0
    assert "NotFoundError" in run.stderr and "code: 'model_not_found'" in run.stderr
