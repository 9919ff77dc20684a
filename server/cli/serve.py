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
    kv_memory: Annotated[
        str | None,
        typer.Option(help="Memory for keys and values, as 4GiB, or a share of what is free, as 30% [half of it]."),
    ] = None,
    itl_target_ms: Annotated[
        float | None,
        typer.Option(help="Milliseconds between tokens that long prompts must leave the others [as measured]."),
    ] = None,
    speculation: Annotated[
        str | None, typer.Option(help="How next tokens are guessed: auto, ngram, mtp or off [auto].")
    ] = None,
    mtp: Annotated[
        str | None,
        typer.Option(help="File of the model's draft head [its own, or an mtp-*.gguf beside it]."),
    ] = None,
    draft_max: Annotated[int | None, typer.Option(help="Guessed tokens of an answer in a step, at most [7].")] = None,
    cache_dir: Annotated[
        str | None, typer.Option(help="Folder in which the prefix cache survives a restart [it does not].")
    ] = None,
    quantize: Annotated[
        str | None, typer.Option(help="Bring matrices of floats to this type: q8_0, q4_k, ... [as they are].")
    ] = None,
    alias: Annotated[list[str] | None, typer.Option(help="Another name for the model; repeatable.")] = None,
    any_model: Annotated[bool | None, typer.Option("--any-model", help="Answer to any model name.")] = None,
    strict_params: Annotated[
        bool | None, typer.Option("--strict-params", help="Refuse parameters that would be ignored.")
    ] = None,
    max_queue: Annotated[int | None, typer.Option(help="Requests that may wait before 429 [256].")] = None,
    priorities_across_callers: Annotated[
        bool | None,
        typer.Option("--priorities-across-callers", help="Let a priority count against requests of other API keys."),
    ] = None,
    drain_timeout: Annotated[float | None, typer.Option(help="Seconds for running requests at stop [30].")] = None,
    max_n: Annotated[int | None, typer.Option(help="Answers to one prompt that a request may ask for [16].")] = None,
    chat_template: Annotated[
        str | None, typer.Option(help="Jinja file with the chat template [the model's own].")
    ] = None,
    default_chat_template_kwargs: Annotated[
        str | None,
        typer.Option(help="""JSON object of arguments to the chat template, as {"enable_thinking": false}."""),
    ] = None,
    reasoning_field: Annotated[
        str | None, typer.Option(help="Where thinking is told: both, reasoning_content, reasoning or none [both].")
    ] = None,
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            help="A key that opens the API; repeatable. OCTAVO_API_KEY keeps it out of the list of processes."
        ),
    ] = None,
    api_key_file: Annotated[str | None, typer.Option(help="A file of such keys, one a line, # for comments.")] = None,
    insecure_no_key: Annotated[
        bool | None, typer.Option("--insecure-no-key", help="Listen beyond this machine without asking for a key.")
    ] = None,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="Another name that requests may call this server by; repeatable.")
    ] = None,
    cors_origin: Annotated[
        list[str] | None, typer.Option(help="A web page's origin that may call this server; repeatable, * is any.")
    ] = None,
    metrics: Annotated[bool | None, typer.Option("--metrics/--no-metrics", help="Serve GET /metrics [on].")] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the settings as they stand, and end.")
    ] = False,
) -> None:
    """Serve a model over HTTP. Every option is also read from OCTAVO_<NAME>."""
    flags = {name: value for name, value in locals().items() if name != "print_config"}
    from server.settings import Settings

    settings = Settings.read(flags)
    if print_config:
        typer.echo(settings.shown())
        return
    from server.cli.run_server import run_server

    run_server(settings)
