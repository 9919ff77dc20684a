"""`octavo bench engine`: speed of the engine alone, on random tokens."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from engine.errors import OctavoError
from server.cli.logits import parse_ids

bench_app = typer.Typer(help="Measure this machine and the engine.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(bench_app, name="bench")


@bench_app.callback()
def bench() -> None:
    """Measure this machine and the engine."""


@bench_app.command()
def engine(
    model: Annotated[str | None, typer.Argument(help="Catalogue name, .gguf file or folder.")] = None,
    batch: Annotated[str, typer.Option(help="Numbers of sequences that decode at once.")] = "1,2,4,8",
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of the prefill measurement.")] = 512,
    gen: Annotated[int, typer.Option(min=1, help="Decode steps that are timed.")] = 64,
    ctx0: Annotated[int, typer.Option(min=1, help="Tokens of context before decoding is timed.")] = 64,
    reps: Annotated[int, typer.Option(min=1, help="Prefills that are timed.")] = 5,
    threads: Annotated[int | None, typer.Option(help="Compute threads [the cores we may use].")] = None,
    isa: Annotated[str | None, typer.Option(help="Instruction tier [the best this processor has].")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> None:
    """Measure prefill and decode on random tokens; medians, with the read bandwidth of the same process."""
    from engine.bench import BenchOptions, bench_engine
    from engine.weights.catalogue import resolve_model
    from engine.weights.gguf import GgufFile

    options = BenchOptions(
        batch=_batch_sizes(batch), prompt=prompt, gen=gen, ctx0=ctx0, repeats=reps, threads=threads, isa=isa
    )
    with GgufFile.open(resolve_model(model).path) as file:
        lines = bench_engine(file, options)
        if as_json:
            for line in lines:
                typer.echo(json.dumps(line))
        else:
            Console().print(_table(list(lines)))


def _batch_sizes(text: str) -> list[int]:
    sizes = parse_ids(text)
    if not all(1 <= size <= 64 for size in sizes):
        raise OctavoError(f"--batch {text} is out of range; give numbers from 1 to 64.")
    return sizes


def _table(lines: list[dict[str, object]]) -> Table:
    table = Table("what", "size", "tok/s", "best", "ms a step", "GB/s")
    for line in lines:
        cells = [line.get("B", line.get("n", "")), *(line.get(key) for key in ("tok_s", "best", "ms_step", "gb_s"))]
        table.add_row(
            str(line["what"]), *(f"{cell:.1f}" if isinstance(cell, float) else str(cell or "") for cell in cells)
        )
    return table
