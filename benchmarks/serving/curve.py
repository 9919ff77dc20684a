"""Tokens a second by the number of callers, beside what the engine alone does in the same session.

    python -m benchmarks.serving.curve smollm2-135m --concurrency 1,2,4,8,16

A closed loop of fixed lengths, as clients/load.py plays it, on a server with a lane for each caller. Then, in turns, as
many callers as `--batch` play it again, and `octavo bench engine` decodes so many sequences, and computes a prompt of
the same length, while the server has nothing to do: the machine's speed may move from minute to minute. Each turn has
three shares of the engine's own speed, and their medians count:

    decoding    tokens a second while all of them decoded, over the engine's
    with        all output over all time, over what the engine would give with the prompts' time counted
    all         all output over all time, over the engine's decoding alone: prompts, queue and ends count against it
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import uvloop
from rich.table import Table

from benchmarks.serving.program import Figures, parser_of, quotient, shown, tell, warn_if_busy
from benchmarks.serving.server_process import ROOT, ServerProcess, serving
from clients.load import write_log
from clients.load_plan import Plan
from clients.load_report import Report, curve, report
from clients.load_run import run_load

Shares = Mapping[str, float | None]

_WARM_UP = 2  # requests a caller, that are not counted


def shares(result: Report, plan: Plan, decode: float, prefill: float) -> Shares:
    """A load's speed over the engine's own: `decode` tokens a second in a batch as large, `prefill` of a prompt."""
    seconds = plan.prompt_tokens / prefill + (plan.output_tokens - 1) / decode  # of a request's share of the engine
    return {
        "decoding": quotient(result.full_tokens_per_second, decode),
        "with_prompts": result.output_tokens_per_second / (plan.output_tokens / seconds),
        "all": result.output_tokens_per_second / decode,
    }


@dataclass(frozen=True, slots=True)
class Turn:
    """A load, and what the engine alone did right after it: tokens a second of decoding, and of a prompt."""

    load: Report
    decode: float
    prefill: float


def _plan(server: ServerProcess, arguments: argparse.Namespace, concurrency: int, seed: int) -> Plan:
    return Plan(
        model=server.model,
        requests=arguments.rounds * concurrency,
        concurrency=concurrency,
        prompt_tokens=arguments.prompt_tokens,
        output_tokens=arguments.output_tokens,
        vocabulary=server.vocabulary,
        seed=seed,
        seconds=arguments.seconds,
    )


async def _load(server: ServerProcess, plan: Plan, log: Path | None) -> Report:
    run = await run_load(server.url, plan)
    if log is not None:
        with open(log, "a") as lines:
            write_log(run, lines)
    return report(run)


async def _sweep(server: ServerProcess, arguments: argparse.Namespace) -> list[Report]:
    warm_up = Plan(model=server.model, requests=_WARM_UP, concurrency=_WARM_UP, vocabulary=server.vocabulary, seed=-1)
    await run_load(server.url, warm_up)
    plans = (_plan(server, arguments, concurrency, seed) for seed, concurrency in enumerate(arguments.concurrency))
    return [await _load(server, plan, arguments.log) for plan in plans]


def _turn(server: ServerProcess, arguments: argparse.Namespace, seed: int) -> Turn:
    load = uvloop.run(_load(server, _plan(server, arguments, arguments.batch, seed), arguments.log))
    speeds = {line["what"]: line["tok_s"] for line in engine_alone(arguments) if "tok_s" in line}
    return Turn(load, speeds["decode"], speeds["prefill"])


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


def medians(each: Sequence[Shares]) -> Shares:
    """The median of each share over all turns, as far as it is known."""
    known = {name: [share for one in each if (share := one[name]) is not None] for name in (each[0] if each else ())}
    return {name: median(given) if given else None for name, given in known.items()}


def _table(arguments: argparse.Namespace, each: Sequence[Shares]) -> Table:
    table = Table("share of the engine's own", "median", "each", title=f"{arguments.batch} callers")
    for name, share in medians(each).items():
        table.add_row(name, shown(share, ".1%"), ", ".join(shown(one[name], ".1%") for one in each))
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
    parser.add_argument("--turns", type=int, default=5, help="of load and engine [%(default)s]")
    parser.add_argument("--bench-steps", type=int, default=128, help="decode steps of the engine alone [%(default)s]")
    parser.add_argument("--log", type=Path, help="append a JSON line for each request to this file")
    arguments = parser.parse_args(given)
    arguments.concurrency = [int(number) for number in arguments.concurrency.split(",") if number]
    warn_if_busy()
    lanes = max([arguments.batch, *arguments.concurrency])
    with serving(arguments.model, [f"--lanes={lanes}", *arguments.serve]) as server:
        loads = uvloop.run(_sweep(server, arguments))
        print(curve(loads), file=sys.stderr)
        turns = [_turn(server, arguments, len(loads) + number) for number in range(arguments.turns)]
    plan = Plan(model="", prompt_tokens=arguments.prompt_tokens, output_tokens=arguments.output_tokens)
    each = [shares(turn.load, plan, turn.decode, turn.prefill) for turn in turns]
    found: Figures = {
        "loads": [asdict(load) for load in loads],
        "turns": [asdict(turn) for turn in turns],
        "shares_of_turns": each,
        "shares": medians(each),
    }
    tell(arguments, found, _table(arguments, each))
    return int(any(load.completed < load.requests for load in [*loads, *(turn.load for turn in turns)]))


if __name__ == "__main__":
    sys.exit(main())
