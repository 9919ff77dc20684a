"""Flags > environment > defaults; a bad value is named."""

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from engine.api.config import EngineConfig
from server.settings import ServingOptions, Settings, SettingsError, all_settings


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in all_settings():
        monkeypatch.delenv(f"OCTAVO_{setting.name.upper()}", raising=False)


def test_the_defaults_are_local_and_modest() -> None:
    settings = Settings.read({})
    assert (settings.host, settings.port, settings.engine.lanes, settings.model) == ("127.0.0.1", 8080, 8, None)
    assert (settings.serving.drain_seconds, settings.serving.ping_seconds) == (30.0, 10.0)


def test_a_flag_beats_the_environment_which_beats_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_PORT", "9000")
    monkeypatch.setenv("OCTAVO_LANES", "4")
    settings = Settings.read({"port": 9001, "lanes": None})
    assert (settings.port, settings.engine.lanes) == (9001, 4)


def test_aliases_are_a_list_of_flags_or_a_comma_separated_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.read({"alias": ["a", "b"]}).engine.aliases == ("a", "b")
    monkeypatch.setenv("OCTAVO_ALIAS", "gpt-4o, gpt-4")
    assert Settings.read({}).engine.aliases == ("gpt-4o", "gpt-4")


def test_an_empty_variable_is_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_PORT", "")
    assert Settings.read({}).port == 8080


def test_a_bad_flag_is_named_with_its_value() -> None:
    with pytest.raises(SettingsError, match=r"--drain-timeout cannot be -1"):
        Settings.read({"drain_timeout": -1})


def test_a_bad_variable_is_named_with_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_PORT", "http")
    with pytest.raises(SettingsError, match=r"OCTAVO_PORT cannot be 'http'"):
        Settings.read({})


def test_settings_do_not_change_after_they_were_read() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings.read({}).port = 1  # type: ignore[misc]


def test_speculation_is_as_the_model_allows_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (Settings.read({}).engine.speculation, Settings.read({}).engine.draft_max) == ("auto", 7)
    monkeypatch.setenv("OCTAVO_SPECULATION", "mtp")
    assert Settings.read({"draft_max": 3}).engine.speculation == "mtp"
    with pytest.raises(SettingsError, match="--draft-max cannot be 16"):
        Settings.read({"draft_max": 16})


def test_keys_and_values_have_one_of_three_types(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.read({}).engine.kv_type == "f16"
    monkeypatch.setenv("OCTAVO_KV_TYPE", "q8_0")
    assert Settings.read({}).engine.kv_type == "q8_0"
    with pytest.raises(SettingsError, match=r"--kv-type cannot be 'q4_0'.*f16.*f32.*q8_0"):
        Settings.read({"kv_type": "q4_0"})


def test_memory_is_a_size_or_a_share() -> None:
    assert Settings.read({"kv_memory": "512 MiB"}).engine.kv_memory == "512 MiB"


@pytest.mark.parametrize("size", ["GiB", "0", "101%"])
def test_what_is_no_size_is_refused(size: str) -> None:
    with pytest.raises(SettingsError, match=r"--kv-memory cannot be .*: it should be"):
        Settings.read({"kv_memory": size})


def test_the_pace_and_the_folder_of_the_cache_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Settings.read({}).engine
    assert (engine.kv_memory, engine.itl_target_ms, engine.cache_dir) == (None, None, None)
    monkeypatch.setenv("OCTAVO_ITL_TARGET_MS", "40")
    monkeypatch.setenv("OCTAVO_CACHE_DIR", "/var/cache/octavo")
    settings = Settings.read({"kv_memory": "30%"})
    assert (settings.engine.itl_target_ms, settings.engine.cache_dir) == (40.0, Path("/var/cache/octavo"))
    assert '"kv_memory": "30%"' in settings.shown()
    for value in (0, -1, float("nan"), float("inf")):
        with pytest.raises(SettingsError, match="--itl-target-ms cannot be"):
            Settings.read({"itl_target_ms": value})


SECRET = "sk-secret-value"


def test_keys_come_from_flags_or_from_either_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    flagged = Settings.read({"api_key": ["a", "b"]})
    assert flagged.api_key == ("a", "b")
    monkeypatch.setenv("OCTAVO_API_KEY", "one")
    monkeypatch.setenv("OCTAVO_API_KEYS", "two, three")
    found = Settings.read({"api_key": []})
    assert (*found.api_key, *found.api_keys) == ("one", "two", "three")


@pytest.mark.parametrize("key", ["", " ", f"{SECRET} x", f"{SECRET}\n", f"{SECRET}\x7f"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(SettingsError, match="--api-key") as refused:
        Settings.read({"api_key": [key]})
    assert SECRET not in str(refused.value)


def test_settings_are_shown_without_their_secrets() -> None:
    settings = Settings.read({"api_key": [SECRET], "port": 81})
    assert '"port": 81' in settings.shown()
    assert SECRET not in settings.shown() + repr(settings)


def test_template_arguments_are_a_json_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_DEFAULT_CHAT_TEMPLATE_KWARGS", '{"enable_thinking": false}')
    assert Settings.read({}).serving.default_template_kwargs == {"enable_thinking": False}
    for value in ("enable_thinking", "[1]", "1"):
        with pytest.raises(SettingsError, match="--default-chat-template-kwargs cannot be"):
            Settings.read({"default_chat_template_kwargs": value})


def test_hosts_and_origins_are_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_ALLOWED_HOST", "a.example,b.example")
    monkeypatch.setenv("OCTAVO_CORS_ORIGIN", "https://a.example")
    settings = Settings.read({})
    assert (settings.serving.allowed_hosts, settings.serving.cors_origins) == (
        ("a.example", "b.example"),
        ("https://a.example",),
    )


def test_foreign_variables_with_our_prefix_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_SOMETHING_ELSE", "1")
    assert Settings.read({}).port == 8080


def test_what_nobody_sets_is_as_the_engine_and_the_http_face_have_it() -> None:
    settings = Settings.read({})
    assert (settings.engine, settings.serving) == (EngineConfig(), ServingOptions())


def test_no_two_settings_have_the_same_name() -> None:
    names = [setting.name for setting in all_settings()]
    assert len(names) == len(set(names))


def test_every_default_would_be_taken_if_it_were_given() -> None:
    defaults = {setting.name: setting.default for setting in all_settings()}
    assert Settings.read(defaults) == Settings()
