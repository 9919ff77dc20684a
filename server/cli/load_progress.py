"""The progress of a load, as a bar on a terminal and as lines elsewhere."""

from rich.console import Console

from server.served import ServedModel
from server.serving import Load, Progress


def shown(load: Load, console: Console) -> Load:
    """The same load, with its progress on the console too."""
    with_progress = _with_bar if console.is_terminal else _with_lines
    return lambda note: with_progress(load, console, note)


def _with_bar(load: Load, console: Console, note: Progress) -> ServedModel:
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Bars(*columns, console=console, transient=True) as bars:
        bar = bars.add_task("Starting", total=1.0)

        def both(stage: str, fraction: float) -> None:
            note(stage, fraction)
            bars.update(bar, description=stage, completed=fraction)

        return load(both)


def _with_lines(load: Load, console: Console, note: Progress) -> ServedModel:
    last = ""

    def both(stage: str, fraction: float) -> None:
        nonlocal last
        note(stage, fraction)
        if stage != last:
            console.print(stage, highlight=False, markup=False, soft_wrap=True)
            last = stage

    return load(both)
