"""The programs of benchmarks/serving from the command line, and how they watch a process."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.table import Table

from benchmarks.serving import arrival, beside_tokenize, curve, overload, program, second_turn, server_process, soak

MAINS = {"arrival": arrival.main, "curve": curve.main, "overload": overload.main}
MAINS |= {"second_turn": second_turn.main, "soak": soak.main, "beside_tokenize": beside_tokenize.main}


@pytest.mark.parametrize("name", MAINS)
def test_every_program_says_how_it_is_called(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main: Callable[[list[str]], object] = MAINS[name]
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert f"python -m benchmarks.serving.{name}" in shown and "smollm2-135m" in shown


def test_an_unknown_way_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arrival.main(["--ways", "octavo,vllm"])
    assert "there is no way vllm; there are octavo, whole, llama.cpp, flash" in capsys.readouterr().err


def test_figures_are_a_json_line_and_the_table_goes_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    program.tell(argparse.Namespace(repeats=3), {"ratio": 0.5}, Table("a column"))
    told = capsys.readouterr()
    line = json.loads(told.out)
    assert (line["ratio"], line["arguments"]) == (0.5, {"repeats": 3}) and line["cpu"]
    assert "a column" in told.err


def test_figures_that_are_missing_are_left_out_or_shown_as_such() -> None:
    assert program.median([None, 3.0, 1.0, None]) == 2.0 and program.median([None]) is None
    assert (
        program.quotient(1.0, 4.0) == 0.25 and program.quotient(1.0, 0) is None and program.quotient(None, 1.0) is None
    )
    assert (program.shown(None), program.shown(1234.56), program.shown("x")) == ("-", "1,234.6", "x")


def test_resident_memory_counts_the_processes_that_were_started() -> None:
    waits = "print(flush=True); input()"
    starts = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {waits!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", starts], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()  # the grandchild runs
        both = server_process.ServerProcess("", parent.pid, "m", 2).resident_bytes()
        one = int(Path(f"/proc/{parent.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        parent.communicate("\n")
    assert both > one > 0
    assert server_process.ServerProcess("", parent.pid, "m", 2).resident_bytes() == 0


def test_a_metric_is_read_by_its_whole_name() -> None:
    text = "# HELP octavo_x What it is.\noctavo_x_total 7.0\noctavo_x 0.25\n"
    assert server_process.metric_of(text, "octavo_x") == 0.25
    assert server_process.metric_of(text, "octavo") is None
