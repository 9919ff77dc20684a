"""Flags > environment > defaults; a bad value is named."""

import pytest
from pydantic import ValidationError

from server.settings import Settings, SettingsError


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"OCTAVO_{name.upper()}", raising=False)


def test_the_defaults_are_local_and_modest() -> None:
    settings = Settings.read({})
    assert (settings.host, settings.port, settings.lanes, settings.model) == ("127.0.0.1", 8080, 8, None)
    assert (settings.drain_timeout, settings.ping_seconds) == (30.0, 10.0)


def test_a_flag_beats_the_environment_which_beats_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_PORT", "9000")
    monkeypatch.setenv("OCTAVO_LANES", "4")
    settings = Settings.read({"port": 9001, "lanes": None})
    assert (settings.port, settings.lanes) == (9001, 4)


def test_aliases_are_a_list_of_flags_or_a_comma_separated_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.read({"alias": ["a", "b"]}).alias == ("a", "b")
    monkeypatch.setenv("OCTAVO_ALIAS", "gpt-4o, gpt-4")
    assert Settings.read({}).alias == ("gpt-4o", "gpt-4")


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
    with pytest.raises(ValidationError, match="frozen"):
        Settings.read({}).port = 1


def test_keys_and_values_have_one_of_three_types(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.read({}).kv_type == "f16"
    monkeypatch.setenv("OCTAVO_KV_TYPE", "q8_0")
    assert Settings.read({}).kv_type == "q8_0"
    with pytest.raises(SettingsError, match=r"--kv-type cannot be 'q4_0'.*f16.*f32.*q8_0"):
        Settings.read({"kv_type": "q4_0"})
