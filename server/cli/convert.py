"""`octavo convert`: a folder of safetensors, or a GGUF file, written as one GGUF file."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.progress import Progress

from server.cli.options import Threads, sentence


def register(app: typer.Typer) -> None:
    app.command()(convert)


def convert(
    model: Annotated[str, typer.Argument(help="Folder of safetensors, .gguf file or catalogue name.")],
    out: Annotated[Path, typer.Argument(help="The .gguf file to write.")],
    type_name: Annotated[
        str | None,
        typer.Option(
            "--type", help=sentence("Type of matrices of floats: f32, f16, bf16, q8_0, q4_k, ...", "as they are")
        ),
    ] = None,
    threads: Threads = None,
) -> None:
    """Write a model as one GGUF file, which llama.cpp reads too."""
    from engine.loading.load_runner import choose_threads
    from engine.weights.catalogue import resolve_model
    from engine.weights.convert import convert as write
    from engine.weights.open_weights import open_weights
    from engine.weights.quantized_file import quantized

    console = Console(stderr=True)
    with (
        open_weights(resolve_model(model).path) as file,
        Progress(console=console, transient=True, disable=not console.is_terminal) as bars,
    ):
        bar = bars.add_task("Writing", total=1.0)
        write(quantized(file, type_name), out, choose_threads(threads), lambda done: bars.update(bar, completed=done))
    typer.echo(f"{out}: {decimal(out.stat().st_size)}")
