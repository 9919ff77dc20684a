"""What the programs of this folder share: their arguments, and how they tell what they found."""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

from engine.version import VERSION
from kernels.machine.cpu import cpu_name

_QUIET_LOAD = 0.5
Figures = Mapping[str, object]


def parser_of(name: str, description: str | None) -> argparse.ArgumentParser:
    """A parser with the arguments that all programs take."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.serving.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", nargs="?", default="smollm2-135m", help="as `octavo serve` takes it [%(default)s]")
    parser.add_argument(
        "--serve",
        action="append",
        default=[],
        metavar="FLAG",
        help="a further flag of `octavo serve`, as --serve=--threads=1; repeatable",
    )
    return parser


def warn_if_busy() -> None:
    """Say so on stderr where something else runs."""
    load = os.getloadavg()[0]
    if load > _QUIET_LOAD:
        print(f"The machine is busy (load {load:.1f}); the figures will be those of a busy one.", file=sys.stderr)


def tell(arguments: argparse.Namespace, figures: Figures, table: Table) -> None:
    """Print a JSON line with the figures, their arguments and the machine; a table for people goes to stderr."""
    Console(stderr=True).print(table)
    machine = {
        "version": VERSION,
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    print(json.dumps({**machine, "arguments": vars(arguments), **figures}, default=str), flush=True)


def median(values: Sequence[float | None]) -> float | None:
    """Of those that are there."""
    present = [value for value in values if value is not None]
    return statistics.median(present) if present else None


def quotient(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


def milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(1e3 * seconds, 2)


def shown(value: object, form: str = ",.1f") -> str:
    """For a cell of a table."""
    return "-" if value is None else format(value, form) if isinstance(value, int | float) else str(value)
