"""`octavo serve`: bind, load in the background, serve, drain. Its options are made from the list of settings."""

import gc
import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from server.cli.options import help_of
from server.settings import Setting, Settings, all_settings


def register(app: typer.Typer) -> None:
    app.command()(with_options(serve))


def serve(print_config: bool, **flags: Any) -> None:
    """Serve a model over HTTP. Every option is also read from OCTAVO_<NAME>."""
    settings = Settings.read(flags)
    if print_config:
        typer.echo(settings.shown())
        return
    # As in octavo.py: a start imports much and makes hardly any garbage. The collector is on once the model is loaded.
    gc.disable()
    try:
        from server.cli.run_server import run_server

        run_server(settings)
    finally:
        gc.enable()


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the signature that typer is to read: each setting that has a help, then --print-config."""
    command.__signature__ = inspect.Signature(list(_parameters()))  # type: ignore[attr-defined]
    return command


def _parameters() -> Iterator[inspect.Parameter]:
    for setting in all_settings():
        if setting.flag.help is not None:
            info = typer.Argument if setting.name == "model" else typer.Option
            yield _parameter(setting.name, None, _kind(setting) | None, info(*_names(setting), help=help_of(setting)))
    told = typer.Option("--print-config", help="Print the settings as they stand, and end.")
    yield _parameter("print_config", False, bool, told)


def _parameter(name: str, default: object, kind: Any, info: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def _kind(setting: Setting) -> Any:
    """The type on the command line, which is None where the option is not given; the settings check the rest."""
    if getattr(setting.kind, "__origin__", None) is tuple:
        return list[str]
    return next((kind for kind in (bool, int, float) if setting.kind in (kind, kind | None)), str)


def _names(setting: Setting) -> tuple[str, ...]:
    """What a flag without a value is called; other options are called after their parameter."""
    if setting.kind is not bool:
        return ()
    name = setting.name.replace("_", "-")
    return (f"--{name}/--no-{name}" if setting.default else f"--{name}",)
