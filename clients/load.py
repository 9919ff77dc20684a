"""A bounded load generator: so many requests, so many at once, at most so long; prints a table of latencies.

Several numbers of callers (--concurrency 1,2,4,8,16) are run in turn, and give a curve. Every run draws new prompts
unless it is given a --seed: a server with a prefix cache would know those of the last run.
"""

import argparse
import json
import secrets
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TextIO

import httpx
import uvloop

from clients.client import DEFAULT_URL, ApiError, AsyncClient
from clients.load_plan import Plan
from clients.load_report import Report, curve, report, table
from clients.load_run import Run, run_load


def plans(model: str, vocabulary: int, arguments: argparse.Namespace) -> list[Plan]:
    """A plan for each number of callers, each with prompts of its own. Raises ValueError."""
    seed = secrets.randbelow(2**31) if arguments.seed is None else arguments.seed
    return [
        Plan(
            model=model,
            requests=arguments.requests,
            concurrency=concurrency,
            prompt_tokens=arguments.prompt_tokens,
            output_tokens=arguments.output_tokens,
            shared_prefix=arguments.shared_prefix,
            cold=arguments.cold,
            vocabulary=vocabulary,
            seed=seed + index,
            seconds=arguments.seconds,
        )
        for index, concurrency in enumerate(_numbers(arguments.concurrency))
    ]


def write_log(run: Run, log: TextIO) -> None:
    """A JSON line for each request that was sent."""
    for record in run.records:
        print(json.dumps({"concurrency": run.plan.concurrency, **record.line(run.began)}), file=log)


def _numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise ValueError(f"concurrency must be whole numbers with commas between them, not {text!r}.") from None


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m clients.load", description=__doc__)
    parser.add_argument("--url", default=DEFAULT_URL, help="the server, without /v1 [%(default)s]")
    parser.add_argument("--model", help="default: the first that the server lists")
    parser.add_argument("--requests", type=int, default=32, help="for each number of callers [%(default)s]")
    parser.add_argument("--concurrency", default="8", help="callers at once; several as 1,2,4 [%(default)s]")
    parser.add_argument("--prompt-tokens", type=int, default=128, help="[%(default)s]")
    parser.add_argument("--output-tokens", type=int, default=64, help="[%(default)s]")
    parser.add_argument("--shared-prefix", type=int, default=0, help="tokens that all prompts begin with [%(default)s]")
    parser.add_argument(
        "--cold", action="store_true", help="the control: the first token differs in each prompt, so nothing is shared"
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="give up what is unfinished then [%(default)s]")
    parser.add_argument("--seed", type=int, help="of the random prompts [a new one each time]")
    parser.add_argument("--log", help="write a JSON line for each request to this file")
    parser.add_argument("--json", action="store_true", help="print a JSON line for each number of callers, no table")
    return parser.parse_args(given)


async def _run(arguments: argparse.Namespace, log: TextIO | None) -> list[Report]:
    async with AsyncClient(arguments.url) as client:
        cards = await client.models()
    card = next((card for card in cards if card["id"] == arguments.model), cards[0])
    loads = plans(arguments.model or card["id"], card["meta"]["n_vocab"], arguments)
    results = []
    for plan in loads:
        run = await run_load(arguments.url, plan)
        results.append(report(run))
        if arguments.json:
            print(json.dumps(asdict(results[-1])), flush=True)
        if log is not None:
            write_log(run, log)
    return results


def main(given: Sequence[str] | None = None) -> int:
    arguments = _arguments(given)
    try:
        if arguments.log is None:
            results = uvloop.run(_run(arguments, None))
        else:
            with open(arguments.log, "w") as log:
                results = uvloop.run(_run(arguments, log))
    except (ApiError, httpx.HTTPError, OSError, ValueError) as error:
        print(f"load: {error}", file=sys.stderr)
        return 1
    if not arguments.json:
        print(table(results[0]) if len(results) == 1 else curve(results))
    return 0 if all(result.completed == result.requests for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
