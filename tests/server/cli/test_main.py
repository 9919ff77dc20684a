"""The command line: its commands, its errors, and how little it loads before it is needed."""

import gc
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from server.cli import run_server
from server.cli.main import main
from server.settings import all_settings
from server.wire.lifecycle import bind

ROOT = Path(__file__).parents[3]


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in ("serve", "pull", "ls", "doctor", "logits", "bench"))


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["ls", "--help"]])
def test_help_loads_neither_the_compiler_nor_the_http_stack(arguments: list[str]) -> None:
    program = f"""
import sys
from server.cli.main import main
assert main({arguments!r}) == 0
heavy = {{"numba", "llvmlite", "fastapi", "uvicorn", "tokenizers"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, timeout=60)


def test_importing_the_server_builds_no_validator_and_they_are_built_when_it_is_ready() -> None:
    program = """
import asyncio, sys
from server.cli import run_server
from server.routes import ENDPOINTS
bodies = [row.body for row in ENDPOINTS if row.body is not None]
assert bodies and not any(body.__pydantic_complete__ for body in bodies)
assert "pydantic.v1" not in sys.modules
# Only the document of the API needs these.
described = [name for name in sys.modules if name.startswith("server.api.") and name.endswith(".answers")]
assert set(described) <= {"server.api.status.answers"} and "server.api.chat_answers" not in sys.modules
assert "fastapi" not in sys.modules
assert not [name for name in sys.modules if name.startswith("kernels")]  # imported while the port already answers
asyncio.run(run_server._build_validators())
assert all(body.__pydantic_complete__ for body in bodies)
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, timeout=60)


def test_no_model_of_ours_builds_its_validator_by_being_imported() -> None:
    program = """
from pydantic import BaseModel
import server.cli.run_server, server.routes

def below(model):
    return [one for child in model.__subclasses__() for one in (child, *below(child))]

assert not BaseModel.model_config.get("defer_build")
ours = [model for model in below(BaseModel) if model.__module__.startswith("server.")]
assert len(ours) > 100
assert [model for model in ours if not model.model_config.get("defer_build")] == []
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=60)


def test_a_server_starts_without_the_collector_and_leaves_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(run_server, "run_server", lambda settings: seen.append(gc.isenabled()))
    assert main(["serve"]) == 0
    assert (seen, gc.isenabled()) == ([False], True)


def test_help_tells_what_holds_where_an_option_is_not_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for told in ("Address to listen on [127.0.0.1].", "Compute threads [the cores we may use].", "/metrics [on]."):
        assert told in shown


@pytest.mark.parametrize("command", [["bench", "engine"], ["bench", "kernels"], ["convert"], ["logits"], ["show"]])
def test_no_help_loses_what_stands_in_brackets(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "the cores we may use]" in shown and re.search(r" \.\s", shown) is None


def test_every_setting_with_a_help_is_an_option(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["serve", "--help"]) == 0
    shown = capsys.readouterr().out
    for setting in all_settings():
        assert (f"--{setting.name.replace('_', '-')} " in shown) == (
            setting.flag.help is not None and setting.name != "model"
        )


def test_a_bad_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--no-such-option"]) == 2
    assert "--no-such-option" in capsys.readouterr().err


def test_a_bad_value_is_one_line_that_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--lanes", "0"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("octavo: The setting --lanes cannot be 0") and error.count("\n") == 1


def test_a_port_in_use_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert main(["serve", "--port", str(port)]) == 1
    assert capsys.readouterr().err.startswith(f"octavo: Port {port} on 127.0.0.1 is in use")


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("server.cli.run_server.run_server", interrupted)
    assert main(["serve"]) == 130


def test_the_network_without_a_key_is_refused_before_anything_is_bound(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OCTAVO_API_KEY", raising=False)
    assert main(["serve", "--host", "0.0.0.0"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("octavo: Listening on 0.0.0.0 without an API key") and error.count("\n") == 1


def test_the_settings_are_printed_without_their_secrets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCTAVO_API_KEY", "sk-from-environment")
    assert (
        main(["serve", "--api-key", "sk-a", "--api-key", "sk-b", "--port", "81", "--no-metrics", "--print-config"]) == 0
    )
    shown = json.loads(capsys.readouterr().out)
    assert (shown["port"], shown["metrics"], len(shown["api_key"])) == (81, False, 2)
    assert "sk-" not in str(shown)


def test_a_key_file_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["serve", "--api-key-file", str(tmp_path / "none"), "--port", "0"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("octavo: Cannot read the API keys") and error.count("\n") == 1
