"""LangChain, LiteLLM and pydantic-ai lead the scripted conversation: tools, streams, data and an error.

Each is an example for users, run as a program by a Python that has its packages over those of the test environment.
They are installed on the first run and kept in pytest's cache; where there is no package index, these tests skip
themselves. LiteLLM is large (260 MB, half a minute): it is tried only with OCTAVO_ALL_CLIENTS=1 in the environment.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.conversation import GREETING_ANSWER, MODEL, PARIS, WEATHER_ANSWER, conversation_server
from tests.clients.installs import EXAMPLES, python_with, run_example
from tests.server.harness import LiveServer

FRAMEWORKS = {
    "langchain_tools.py": "langchain-openai==1.7.4",
    "litellm_tools.py": "litellm==1.110.2",
    "pydantic_ai_tools.py": "pydantic-ai-slim[openai]==2.68.0",
}
LARGE = {"litellm_tools.py"}
WANTS_ALL = os.environ.get("OCTAVO_ALL_CLIENTS") == "1"
Command = list[Path]


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with conversation_server() as server:
        yield server


@pytest.fixture(scope="module", params=FRAMEWORKS)
def command(request: pytest.FixtureRequest) -> Command:
    if request.param in LARGE and not WANTS_ALL:
        pytest.skip("It is large to install; set OCTAVO_ALL_CLIENTS=1 to try it.")
    cache = request.config.cache
    assert cache is not None
    return [python_with(FRAMEWORKS[request.param], cache), EXAMPLES / request.param]


def test_the_conversation_with_tools_streams_and_data(server: LiveServer, command: Command, tmp_path: Path) -> None:
    run = run_example(command, server.url, MODEL, tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [WEATHER_ANSWER, GREETING_ANSWER, str(PARIS)]


def test_the_servers_words_reach_who_asks_for_an_unknown_model(
    server: LiveServer, command: Command, tmp_path: Path
) -> None:
    run = run_example(command, server.url, "nope", tmp_path)
    assert run.returncode != 0
    assert "'nope' is not served here; use one of: scripted, gpt-4o." in run.stderr
