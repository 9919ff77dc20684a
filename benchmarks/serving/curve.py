"""Tokens a second by the number of callers, beside what the engine alone does in the same session.

    python -m benchmarks.serving.curve smollm2-135m --concurrency 1,2,4,8,16

A closed loop of fixed lengths, as clients/load.py plays it, on a server with a lane for each caller; then the server
stops, and `octavo bench engine` decodes `--batch` sequences and computes a prompt of the same length. For the load with
as many callers, three shares of the engine's own speed:

    decoding    tokens a second while all of them decoded, over the engine's
    with        all output over all time, over what the engine would give with the prompts' time counted
    all         all output over all time, over the engine's decoding alone: prompts, queue and ends count against it
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import uvloop
from rich.table import Table

from benchmarks.serving.program import Figures, parser_of, quotient, shown, tell, warn_if_busy
from benchmarks.serving.server_process import ROOT, ServerProcess, serving
from clients.load import write_log
from clients.load_plan import Plan
from clients.load_report import Report, curve, report
from clients.load_run import run_load

_WARM_UP = 2  # requests a caller, that are not counted


def shares(result: Report, plan: Plan, decode: float, prefill: float) -> dict[str, float | None]:
    """A load's speed over the engine's own: `decode` tokens a second in a batch as large, `prefill` of a prompt."""
    seconds = plan.prompt_tokens / prefill + (plan.output_tokens - 1) / decode  # of a request's share of the engine
    return {
        "decoding": quotient(result.full_tokens_per_second, decode),
        "with_prompts": result.output_tokens_per_second / (plan.output_tokens / seconds),
        "all": result.output_tokens_per_second / decode,
    }


def _plans(server: ServerProcess, arguments: argparse.Namespace) -> list[Plan]:
    return [
        Plan(
            model=server.model,
            requests=arguments.rounds * concurrency,
            concurrency=concurrency,
            prompt_tokens=arguments.prompt_tokens,
            output_tokens=arguments.output_tokens,
            vocabulary=server.vocabulary,
            seed=index,
            seconds=arguments.seconds,
        )
        for index, concurrency in enumerate(arguments.concurrency)
    ]


async def _sweep(server: ServerProcess, arguments: argparse.Namespace) -> list[Report]:
    warm_up = Plan(model=server.model, requests=_WARM_UP, concurrency=_WARM_UP, vocabulary=server.vocabulary, seed=-1)
    await run_load(server.url, warm_up)
    results = []
    for plan in _plans(server, arguments):
        run = await run_load(server.url, plan)
        results.append(report(run))
        if arguments.log:
            with open(arguments.log, "a") as log:
                write_log(run, log)
    return results


def engine_alone(arguments: argparse.Namespace) -> list[Mapping[str, Any]]:
    """The lines of `octavo bench engine`, at the mean context of the load."""
    context = arguments.prompt_tokens + max(1, arguments.output_tokens // 2 - arguments.bench_steps // 2)
    command = [sys.executable, str(ROOT / "octavo.py"), "bench", "engine", arguments.model, "--json"]
    sizes = {
        "batch": arguments.batch,
        "prompt": arguments.prompt_tokens,
        "ctx0": context,
        "gen": arguments.bench_steps,
    }
    flags = [flag for flag in arguments.serve if flag.startswith(("--threads=", "--isa=", "--kv-type="))]
    command += [*(f"--{name}={value}" for name, value in sizes.items()), *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"octavo bench engine failed: {done.stderr.strip()[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _figures(arguments: argparse.Namespace, results: Sequence[Report]) -> Figures:
    lines = engine_alone(arguments)
    (decode,) = (line["tok_s"] for line in lines if line["what"] == "decode")
    (prefill,) = (line["tok_s"] for line in lines if line["what"] == "prefill")
    found = {"loads": [asdict(result) for result in results], "engine_decode": decode, "engine_prefill": prefill}
    same = [result for result in results if result.concurrency == arguments.batch]
    plan = Plan(model="", prompt_tokens=arguments.prompt_tokens, output_tokens=arguments.output_tokens)
    return {**found, "shares": shares(same[0], plan, decode, prefill) if same else None}


def _table(arguments: argparse.Namespace, found: Figures) -> Table:
    table = Table("share of the engine's own", title=f"{arguments.batch} callers")
    table.add_column("", justify="right")
    given = found["shares"]
    for name, share in given.items() if isinstance(given, dict) else ():
        table.add_row(name, shown(share, ".1%"))
    table.add_row("engine, tokens/s of output", shown(found["engine_decode"]))
    table.add_row("engine, tokens/s of prompts", shown(found["engine_prefill"]))
    return table


def main(given: Sequence[str] | None = None) -> int:
    """Run the command line; 1 if a request of the sweep did not finish."""
    parser = parser_of("curve", __doc__)
    parser.add_argument("--concurrency", default="1,2,4,8,16", help="numbers of callers [%(default)s]")
    parser.add_argument("--rounds", type=int, default=4, help="requests of each caller [%(default)s]")
    parser.add_argument("--prompt-tokens", type=int, default=256, help="[%(default)s]")
    parser.add_argument("--output-tokens", type=int, default=128, help="[%(default)s]")
    parser.add_argument("--seconds", type=float, default=600.0, help="for each number of callers [%(default)s]")
    parser.add_argument("--batch", type=int, default=8, help="sequences that the engine alone decodes [%(default)s]")
    parser.add_argument("--bench-steps", type=int, default=64, help="decode steps of the engine alone [%(default)s]")
    parser.add_argument("--log", type=Path, help="append a JSON line for each request to this file")
    arguments = parser.parse_args(given)
    arguments.concurrency = [int(number) for number in arguments.concurrency.split(",")]
    warn_if_busy()
    with serving(arguments.model, [f"--lanes={max(arguments.concurrency)}", *arguments.serve]) as server:
        results = uvloop.run(_sweep(server, arguments))
    print(curve(results), file=sys.stderr)
    found = _figures(arguments, results)
    tell(arguments, found, _table(arguments, found))
    return int(any(result.completed < result.requests for result in results))


if __name__ == "__main__":
    sys.exit(main())
