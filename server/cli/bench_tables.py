"""The measured lines of `octavo bench` as tables for people."""

from collections.abc import Iterator, Sequence

from rich.table import Table

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
