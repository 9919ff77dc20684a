"""From measured lines of several rounds to medians, ratios and a table."""

import statistics
from collections.abc import Iterator, Sequence

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from kernels.machine.cpu import cpu_name

# One measurement, with the keys that `octavo bench engine --json` and llamacpp_baseline.py share.
Line = dict[str, object]
Size = tuple[str, str, int]  # model, what was measured, its size: tokens of the prompt, or sequences


def compare(lines: Sequence[Line]) -> list[Line]:
    """Return one row for each model and size: medians of both engines in tok/s, their ratio, and Octavo's efficiency.

    llama.cpp's figure is the better of its medians without and with flash attention. `of_bandwidth` is the share of
    the read bandwidth (median, same process) at which Octavo's decode step reads weights.
    """
    return [_row(size, lines) for size in _sizes(lines)]


def _sizes(lines: Sequence[Line]) -> Iterator[Size]:
    yield from dict.fromkeys(_size(line) for line in lines if line["what"] in ("prefill", "decode"))


def _size(line: Line) -> Size:
    number = line.get("B", line.get("n", 0))
    assert isinstance(number, int)
    return str(line["model"]), str(line["what"]), number


def _row(size: Size, lines: Sequence[Line]) -> Line:
    model, what, number = size
    same = [line for line in lines if _size(line) == size]
    ours = median_of([line for line in same if line["engine"] == "octavo"], "tok_s")
    theirs = {
        flash: median_of([line for line in same if line["engine"] == "llama.cpp" and line["flash"] == flash], "tok_s")
        for flash in (0, 1)
    }
    better = max(theirs, key=lambda flash: theirs[flash] or 0)
    row: Line = {"compared": what, "model": model, "size": number, "octavo": ours, "llama.cpp": theirs[better]}
    row |= {"flash": better, "ratio": _quotient(ours, theirs[better])}
    if what == "decode":
        mine = [line for line in lines if line["engine"] == "octavo" and line["model"] == model]
        row["gb_s"] = median_of([line for line in mine if _size(line) == size], "gb_s")
        row["of_bandwidth"] = _quotient(row["gb_s"], median_of([x for x in mine if x["what"] == "bandwidth"], "gb_s"))
    return row


def median_of(lines: Sequence[Line], key: str) -> float | None:
    """The median of a key over lines, or None without lines."""
    values = [value for line in lines if isinstance(value := line.get(key), float)]
    return statistics.median(values) if values else None


def _quotient(a: object, b: object) -> float | None:
    return a / b if isinstance(a, float) and isinstance(b, float) and b > 0 else None


def comparison_table(lines: Sequence[Line], rows: Sequence[Line]) -> Group:
    """What was measured with, and one table row for each comparison."""
    table = Table(Column("model", overflow="fold"), title="tokens a second")
    for name in ("what", "size", "octavo", "llama.cpp", "flash", "ratio", "GB/s", "of read"):
        table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(
            str(row["model"]),
            str(row["compared"]),
            str(row["size"]),
            _number(row["octavo"], ".1f"),
            _number(row["llama.cpp"], ".1f"),
            str(row["flash"]),
            _number(row["ratio"], ".2f"),
            _number(row.get("gb_s"), ".1f"),
            _number(row.get("of_bandwidth"), ".0%"),
        )
    return Group(Text("\n".join(_heading(lines))), table)


def _heading(lines: Sequence[Line]) -> Iterator[str]:
    yield f"cpu        {cpu_name()}"
    bandwidth = median_of([line for line in lines if line["what"] == "bandwidth"], "gb_s")
    if bandwidth is not None:
        yield f"bandwidth  {bandwidth:.1f} GB/s read"
    for engine in ("octavo", "llama.cpp"):
        for line in (line for line in lines if line["engine"] == engine):
            detail = line.get("isa") or line.get("system", "")
            yield f"{engine:<10} {line['version']}, {line['threads']} threads, {detail}"
            break
    rounds = {line["round"] for line in lines if "round" in line}
    yield f"rounds     {len(rounds)}, interleaved"


def _number(value: object, form: str) -> str:
    return format(value, form) if isinstance(value, float) else "-"
