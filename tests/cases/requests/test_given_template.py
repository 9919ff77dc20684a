"""`--chat-template`: the file takes the place of the model's own template, or is the first that a model has."""

from pathlib import Path

import pytest

from engine.api.config import EngineConfig
from engine.errors import ModelNotFoundError
from engine.model import load_model
from tests.cases.real import CHAT_PATH, HI, serving, tiny_model

OURS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<you>{% endif %}"


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    path = tmp_path / "ours.jinja"
    path.write_text(OURS)
    return path


def test_it_wins_over_the_models_own(tmp_path: Path, ours: Path) -> None:
    path = tiny_model(tmp_path, "plain")
    with serving(path) as server:
        own, fingerprint = server.prompt(HI), server.model.fingerprint
    with serving(path, chat_template=ours) as server:
        assert server.prompt(HI) == "<user>Hi<you>" != own
        assert server.http.get("/props").json()["chat_template"] == OURS
        assert server.chat(max_tokens=2)["usage"]["prompt_tokens"] == len(server.prompt_ids(HI))
        assert server.model.fingerprint != fingerprint


def test_a_model_without_one_serves_chats_with_it_and_names_the_flag_else(tmp_path: Path, ours: Path) -> None:
    path = tiny_model(tmp_path, "plain", chat_template=None)
    with serving(path) as server:
        message = server.refusal(CHAT_PATH, {"messages": HI})["message"]
        assert "no chat template; start the server with --chat-template, or use POST /v1/completions" in message
        assert server.http.get("/props").json()["chat_template"] is None
    with serving(path, chat_template=ours) as server:
        assert server.prompt(HI) == "<user>Hi<you>"
        assert server.chat(max_tokens=2, ignore_eos=True)["usage"]["completion_tokens"] == 2


def test_a_missing_one_is_told_before_the_model_is_looked_for(tmp_path: Path) -> None:
    options = EngineConfig(chat_template=tmp_path / "missing.jinja")
    with pytest.raises(ModelNotFoundError, match=r"There is no chat template .*missing\.jinja"):
        load_model(str(tmp_path / "missing.gguf"), options, lambda stage, share: None)
