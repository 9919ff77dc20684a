"""`octavo bench`: speed of the engine alone, and of each matmul kernel, on random numbers.

What was measured is told as tables for people, or as JSON lines.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from engine.errors import OctavoError
from server.cli.logits import parse_ids
from server.cli.options import DEFAULT_KV_TYPE, Isa, KvType, Model, Quantize, Threads, sentence

Line = dict[str, object]


def engine_tables(lines: Sequence[Line]) -> Iterator[Table]:
    """The measurements, then the ledgers if there are any."""
    table = Table("what", "size", "tok/s", "best", "ms a step", "GB/s")
    for line in lines:
        if not str(line["what"]).startswith("ledger"):
            cells = (_cell(line.get(key), ".1f") for key in ("tok_s", "best", "ms_step", "gb_s"))
            table.add_row(str(line["what"]), _size(line), *cells)
    yield table
    for total in (line for line in lines if line["what"] == "ledger total"):
        entries = [line for line in lines if line["what"] == "ledger" and _size(line) == _size(total)]
        yield _ledger_table(total, [line for line in entries if ("B" in line) == ("B" in total)])


def _ledger_table(total: Line, entries: Sequence[Line]) -> Table:
    what = "decode, batch" if "B" in total else "prefill of"
    title = f"{what} {_size(total)}: {_cell(total['ms_step'], '.2f')} ms, {_cell(total['coverage'], '.1%')} in ops"
    table = Table("op", "ops", "ms", "work", "wait", "share", "GB/s", "GOP/s", title=title)
    for entry in entries:
        times = (_cell(entry[key], ".3f") for key in ("ms", "work_ms", "wait_ms"))
        rates = (_cell(entry.get(key), ".1f") for key in ("gb_s", "gop_s"))
        table.add_row(str(entry["op"]), str(entry["ops"] or ""), *times, _cell(entry["share"], ".1%"), *rates)
    return table


def kernel_table(lines: Sequence[Line]) -> Table:
    """One row a kernel; the limits that shares are of stand in the JSON lines."""
    table = Table("type", "shape", "rows", "tile", "us", "GB/s", "of read", "GOP/s", "of peak")
    formats = {"us": ".0f", "gb_s": ".1f", "of_read": ".0%", "gop_s": ".1f", "of_peak": ".0%"}
    for line in lines:
        names = (str(line[key]) for key in ("type", "shape", "rows", "tile"))
        table.add_row(*names, *(_cell(line[key], form) for key, form in formats.items()))
    return table


def _size(line: Line) -> str:
    return str(line.get("B", line.get("n", "")))


def _cell(value: object, form: str) -> str:
    return format(value, form) if isinstance(value, float) else ""


bench_app = typer.Typer(help="Measure this machine and the engine.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON lines.")]


def register(app: typer.Typer) -> None:
    app.add_typer(bench_app, name="bench")


@bench_app.callback()
def bench() -> None:
    """Measure this machine and the engine."""


@bench_app.command()
def engine(
    model: Model = None,
    batch: Annotated[str, typer.Option(help="Numbers of sequences that decode at once.")] = "1,2,4,8",
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of the prefill measurement.")] = 512,
    gen: Annotated[int, typer.Option(min=1, help="Decode steps that are timed.")] = 64,
    ctx0: Annotated[int, typer.Option(min=1, help="Tokens of context before decoding is timed.")] = 64,
    reps: Annotated[int, typer.Option(min=1, help="Prefills that are timed.")] = 5,
    threads: Threads = None,
    isa: Isa = None,
    kv_type: KvType = DEFAULT_KV_TYPE,
    quantize: Quantize = None,
    ledger: Annotated[bool, typer.Option("--ledger", help="Also say what each op of a step takes.")] = False,
    as_json: Json = False,
) -> None:
    """Measure prefill and decode on random tokens; medians, with the read bandwidth of the same process."""
    from engine.measure.bench_engine import BenchOptions, bench_engine
    from engine.weights.catalogue import resolve_model
    from engine.weights.draft_head import open_trunk
    from engine.weights.quantized_file import quantized

    options = BenchOptions(
        batch=_batch_sizes(batch),
        prompt=prompt,
        gen=gen,
        ctx0=ctx0,
        repeats=reps,
        threads=threads,
        isa=isa,
        kv_type=kv_type,
        ledger=ledger,
    )
    with quantized(open_trunk(resolve_model(model).path), quantize) as file:
        lines = bench_engine(file, options)
        if as_json:
            _print_json(lines)
        else:
            Console().print(*engine_tables(list(lines)), sep="\n")


@bench_app.command()
def kernels(
    types: Annotated[str | None, typer.Option(help=sentence("Weight types, like Q4_K,Q8_0", "all"))] = None,
    rows: Annotated[str, typer.Option(help="Numbers of rows that a matrix is multiplied with.")] = "1,2,4,8,16,64,512",
    shape: Annotated[
        list[str] | None, typer.Option(help=sentence("Outputs x columns; may be repeated", "2048x8192"))
    ] = None,
    reps: Annotated[int, typer.Option(min=1, help="Rounds; the kinds of a round run in turn.")] = 5,
    megabytes: Annotated[
        int | None, typer.Option(min=1, help=sentence("Weights to go through", "4 x the last cache"))
    ] = None,
    threads: Threads = None,
    isa: Isa = None,
    as_json: Json = False,
) -> None:
    """Measure the matmul of each weight type against the read bandwidth and the dot product's peak."""
    from engine.measure.bench_kernels import KernelOptions, bench_kernels

    options = KernelOptions(
        types=types.split(",") if types else None,
        rows=_row_counts(rows),
        shapes=[_shape(text) for text in shape or ["2048x8192"]],
        repeats=reps,
        megabytes=megabytes,
        threads=threads,
        isa=isa,
    )
    lines = bench_kernels(options)
    if as_json:
        _print_json(lines)
    else:
        Console().print(kernel_table(list(lines)))


def _print_json(lines: Iterable[Line]) -> None:
    for line in lines:
        typer.echo(json.dumps(line))


def _batch_sizes(text: str) -> list[int]:
    sizes = parse_ids(text)
    if not all(1 <= size <= 64 for size in sizes):
        raise OctavoError(f"--batch {text} is out of range; give numbers from 1 to 64.")
    return sizes


def _row_counts(text: str) -> list[int]:
    counts = parse_ids(text)
    if not all(1 <= count <= 4096 for count in counts):
        raise OctavoError(f"--rows {text} is out of range; give numbers from 1 to 4096.")
    return counts


def _shape(text: str) -> tuple[int, int]:
    outputs, _, columns = text.partition("x")
    if not (outputs.isdecimal() and columns.isdecimal() and int(outputs) > 0 and int(columns) > 0):
        raise OctavoError(f"{text!r} is no shape; write outputs and columns like 2048x8192.")
    return int(outputs), int(columns)
