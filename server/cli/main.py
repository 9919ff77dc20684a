"""The `octavo` command: its groups, and how errors end it."""

import sys
from collections.abc import Sequence

import typer

from engine.errors import OctavoError
from server.cli import bench, convert, doctor, logits, models, serve, show

INTERRUPTED = 130  # what shells report for a program ended by Ctrl-C


def build_app() -> typer.Typer:
    """The command line. The modules of the groups are light: what is heavy they import when they run."""
    app = typer.Typer(
        name="octavo",
        help="An OpenAI-compatible inference server for ordinary CPUs.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for group in (serve, models, show, convert, doctor, logits, bench):
        group.register(app)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Our own errors are one line, without a traceback."""
    try:
        build_app()(args=arguments, prog_name="octavo")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except OctavoError as error:
        print(f"octavo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0
