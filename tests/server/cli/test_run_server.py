"""What `octavo serve` was told reaches the load of the model and its engine, and the HTTP face."""

from pathlib import Path
from typing import Any

import pytest

from engine import model
from engine.api.config import EngineConfig
from server.cli.run_server import engine_load, serving_options
from server.settings import ServingOptions, Settings


def loaded_with(monkeypatch: pytest.MonkeyPatch, **flags: Any) -> EngineConfig:
    seen: list[EngineConfig] = []
    monkeypatch.setattr(model, "load_model", lambda name, config, progress: seen.append(config))
    engine_load(Settings.read(flags))(lambda stage, share: None)
    return seen[0]


def test_what_is_not_said_is_left_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert loaded_with(monkeypatch) == EngineConfig()


def test_what_is_said_reaches_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {"kv_memory": "30%", "itl_target_ms": 40, "cache_dir": "/var/kept", "lanes": 3, "max_queue": 7, "ctx": 99}
    found = loaded_with(monkeypatch, **flags, alias=["a"], chat_template="mine.jinja", priorities_across_callers=True)
    assert found == EngineConfig(
        kv_memory="30%",
        itl_target_ms=40.0,
        cache_dir=Path("/var/kept"),
        lanes=3,
        max_waiting=7,
        context_length=99,
        aliases=("a",),
        chat_template=Path("mine.jinja"),
        priorities_across_callers=True,
    )


def test_speculation_reaches_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = loaded_with(monkeypatch, speculation="ngram", draft_max=4, mtp="heads/mtp-x.gguf")
    assert found == EngineConfig(speculation="ngram", draft_max=4, mtp=Path("heads/mtp-x.gguf"))


def test_the_http_face_gets_its_settings_the_address_and_all_keys(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("three\n")
    flags = {"host": "::1", "any_model": True, "drain_timeout": 1, "api_key": ["one"], "api_keys": ["two"]}
    found = serving_options(Settings.read({**flags, "api_key_file": tmp_path / "keys"}))
    assert found == ServingOptions(host="::1", any_model=True, drain_seconds=1.0, api_keys=("one", "two", "three"))
