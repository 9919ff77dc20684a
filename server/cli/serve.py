"""`octavo serve`: bind, load in the background, serve, drain."""

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command()(serve)


def serve(
    model: Annotated[str | None, typer.Argument(help="Catalogue name, .gguf file or folder [smollm2-135m].")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on [127.0.0.1].")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one [8080].")] = None,
    lanes: Annotated[int | None, typer.Option(help="Sequences decoded at once [8].")] = None,
    ctx: Annotated[int | None, typer.Option(help="Context in tokens [as the model and memory allow].")] = None,
    threads: Annotated[int | None, typer.Option(help="Compute threads [the cores we may use].")] = None,
    isa: Annotated[str | None, typer.Option(help="Instruction tier [the best this processor has].")] = None,
    kv_type: Annotated[
        str | None, typer.Option(help="Type of attention keys and values: f16, f32 or q8_0 [f16].")
    ] = None,
    alias: Annotated[list[str] | None, typer.Option(help="Another name for the model; repeatable.")] = None,
    any_model: Annotated[bool | None, typer.Option("--any-model", help="Answer to any model name.")] = None,
    strict_params: Annotated[
        bool | None, typer.Option("--strict-params", help="Refuse parameters that would be ignored.")
    ] = None,
    max_queue: Annotated[int | None, typer.Option(help="Requests that may wait before 429 [256].")] = None,
    drain_timeout: Annotated[float | None, typer.Option(help="Seconds for running requests at stop [30].")] = None,
) -> None:
    """Serve a model over HTTP. Every option is also read from OCTAVO_<NAME>."""
    flags = locals()
    from server.cli.run_server import run_server
    from server.settings import Settings

    run_server(Settings.read({**flags, "alias": alias or None}))
