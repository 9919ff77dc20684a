"""What `octavo serve` was told reaches the load of the model and its engine."""

from pathlib import Path
from typing import Any

import pytest

from engine import machine, model
from engine.model import LoadOptions
from server.cli.run_server import engine_load
from server.settings import Settings


def loaded_with(monkeypatch: pytest.MonkeyPatch, **flags: Any) -> LoadOptions:
    seen: list[LoadOptions] = []
    monkeypatch.setattr(model, "load_model", lambda name, options, progress: seen.append(options))
    monkeypatch.setattr(machine, "available_memory", lambda: 1_000_000)
    engine_load(Settings.read(flags))(lambda stage, share: None)
    return seen[0]


def test_what_is_not_said_is_left_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    options = loaded_with(monkeypatch)
    assert (options.kv_memory, options.itl_target_ms, options.cache_dir) == (None, None, None)
    config = model.engine_config(options, "fp")
    assert (config.itl_target_seconds, config.cache_folder) == (None, None)


def test_memory_pace_and_cache_reach_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    options = loaded_with(monkeypatch, kv_memory="30%", itl_target_ms=40, cache_dir="/var/kept", lanes=3, max_queue=7)
    assert options.kv_memory == 300_000
    config = model.engine_config(options, "fp")
    assert (config.itl_target_seconds, config.cache_folder, config.cache_identity) == (0.04, Path("/var/kept"), "fp")
    assert (config.lanes, config.max_waiting) == (3, 7)


def test_a_chat_template_reaches_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    assert loaded_with(monkeypatch).chat_template is None
    assert loaded_with(monkeypatch, chat_template="mine.jinja").chat_template == Path("mine.jinja")


def test_speculation_reaches_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    options = loaded_with(monkeypatch, speculation="ngram", draft_max=4, mtp="heads/mtp-x.gguf")
    assert options.mtp == Path("heads/mtp-x.gguf") and loaded_with(monkeypatch).mtp is None
    config = model.engine_config(options, "fp")
    assert (config.speculation, config.draft_max) == ("ngram", 4)


def test_how_far_priorities_reach_is_told_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not model.engine_config(loaded_with(monkeypatch), "fp").priorities_across_callers
    options = loaded_with(monkeypatch, priorities_across_callers=True)
    assert model.engine_config(options, "fp").priorities_across_callers
