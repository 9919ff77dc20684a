"""A long prompt arrives while others read their answers: how long do they stall, and how long does it take?

    python -m benchmarks.serving.arrival smollm2-135m --prompt-tokens 4000 --ways octavo,whole,llama.cpp,flash

Seven streams decode; then a prompt of random tokens comes. Gaps are between two pieces of text of one stream: `before`
in the seconds before the prompt was sent, `during` where they overlap the time from its sending to its first token.
`alone` is the prompt's time to first token on an idle server, `beside` that beside the streams. The ways:

    octavo      the server as it is, with the flags given by --serve
    whole       the same with a target for gaps that no step reaches (--itl-target-ms)
    llama.cpp   its batch interface driven as its server does, in the environment that build_llamacpp.sh makes
    flash       the same with flash attention
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import uvloop
from rich.table import Table

from benchmarks.serving.program import Figures, median, milliseconds, parser_of, quotient, shown, tell, warn_if_busy
from benchmarks.serving.server_process import ROOT, ServerProcess, serving
from benchmarks.serving.text import words
from clients.exchange import Address
from clients.load_report import percentile_ms
from clients.streamed import Streamed, ask

WAYS = ("octavo", "whole", "llama.cpp", "flash")
WHOLE_FLAG = "--itl-target-ms=60000"
DEFAULT_BASELINE = Path.home() / ".cache" / "octavo-baseline"
_PATIENCE = 600.0
Gap = tuple[float, float]  # from, to


@dataclass(slots=True)
class Seen:
    """Seconds, over all repeats."""

    alone: list[float] = field(default_factory=list)  # the prompt's time to first token
    together: list[float] = field(default_factory=list)  # the same, beside the streams
    before: list[float] = field(default_factory=list)  # gaps
    during: list[float] = field(default_factory=list)
    worst: list[float] = field(default_factory=list)  # the longest of each repeat's gaps during
    targets: list[float] = field(default_factory=list)  # of the server for a gap, where it tells one
    ended_early: int = 0  # streams that were over before the prompt's first token, and make the rest too good

    def figures(self) -> Figures:
        alone, together = median(self.alone), median(self.together)
        return {
            "alone_first_token_ms": milliseconds(alone),
            "first_token_ms": milliseconds(together),
            "first_token_ratio": quotient(together, alone),
            "gap_before_ms_p50": percentile_ms(self.before, 50),
            "gap_before_ms_worst": percentile_ms(self.before, 100),
            "gap_during_ms_p50": percentile_ms(self.during, 50),
            "gap_during_ms_p99": percentile_ms(self.during, 99),
            "gap_during_ms_worst": percentile_ms(self.during, 100),
            "gap_during_ms_worst_median": milliseconds(median(self.worst)),
            "target_ms": milliseconds(median(self.targets)),
            "worst_to_target": quotient(max(self.during, default=None), median(self.targets)),
            "streams_ended_early": self.ended_early,
        }


def gaps_within(gaps: Iterable[Gap], begin: float, end: float) -> list[float]:
    """The lengths of the gaps that overlap a time."""
    return [after - before for before, after in gaps if after > begin and before < end]


async def measure(server: ServerProcess, arguments: argparse.Namespace) -> Seen:
    """Alone and together in turn, so that both see the same machine."""
    seen = Seen()
    draw = random.Random(arguments.seed)
    await _long_prompt(server, draw, arguments)  # what a first time costs is not asked here
    for _ in range(arguments.repeats):
        server.wait_until_idle()
        seen.alone += _first_token(await _long_prompt(server, draw, arguments))
        server.wait_until_idle()
        await _together(server, draw, arguments, seen)
    return seen


async def _together(server: ServerProcess, draw: random.Random, arguments: argparse.Namespace, seen: Seen) -> None:
    streams = [Streamed() for _ in range(arguments.streams)]
    tasks = [asyncio.create_task(_stream(server, words(draw, 32), arguments, stream)) for stream in streams]
    try:
        await _until_all_decode(streams, tasks)
        target = server.metric("octavo_itl_target_seconds")
        seen.targets += [] if target is None else [target]
        began = time.perf_counter()
        await asyncio.sleep(arguments.before)
        prompt = await _long_prompt(server, draw, arguments)
        seen.ended_early += sum(task.done() for task in tasks)
        await asyncio.sleep(0.2)  # for the ends of gaps
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    gaps = [gap for stream in streams for gap in pairwise(stream.times)]
    seen.together += _first_token(prompt)
    seen.before += gaps_within(((begin, end) for begin, end in gaps if end < prompt.sent), began, prompt.sent)
    during = gaps_within(gaps, prompt.sent, prompt.times[0])
    seen.during += during
    seen.worst += [max(during)] if during else []


async def _stream(server: ServerProcess, prompt: str, arguments: argparse.Namespace, into: Streamed) -> None:
    body = {
        "model": server.model,
        "prompt": prompt,
        "max_tokens": arguments.stream_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "skip_special_tokens": False,
    }
    await ask(Address.of(server.url), "/v1/completions", body, into)


async def _until_all_decode(streams: Sequence[Streamed], tasks: Sequence[asyncio.Task[None]]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while any(len(stream.times) < 4 for stream in streams):
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.01)


async def _long_prompt(server: ServerProcess, draw: random.Random, arguments: argparse.Namespace) -> Streamed:
    """Send a prompt that no prefix cache knows."""
    answer = Streamed()
    prompt = [draw.randrange(1, server.vocabulary) for _ in range(arguments.prompt_tokens)]
    body = {
        "model": server.model,
        "prompt": prompt,
        "max_tokens": 8,
        "temperature": 0,
        "ignore_eos": True,
        "skip_special_tokens": False,
    }
    await ask(Address.of(server.url), "/v1/completions", body, answer)
    return answer


def _first_token(answer: Streamed) -> list[float]:
    assert answer.first_token_seconds is not None, "an answer of eight tokens had no text"
    return [answer.first_token_seconds]


def _octavo(arguments: argparse.Namespace, flags: Sequence[str]) -> Figures:
    with serving(arguments.model, [f"--lanes={arguments.streams + 1}", *arguments.serve, *flags]) as server:
        return uvloop.run(measure(server, arguments)).figures()


def _llamacpp(arguments: argparse.Namespace, flash: int) -> Figures:
    """In the other environment, by the same figures."""
    sizes = [
        f"--streams={arguments.streams}",
        f"--prompt-tokens={arguments.prompt_tokens}",
        f"--repeats={arguments.repeats}",
        f"--threads={len(os.sched_getaffinity(0))}",
        f"--flash={flash}",
    ]
    python = str(arguments.baseline / "bin" / "python")
    command = [python, "-m", "benchmarks.llamacpp_arrival", str(_model_file(arguments.model)), *sizes]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"llama.cpp failed: {(done.stderr or done.stdout).strip()[-2000:]}")
    return llamacpp_figures(json.loads(done.stdout.splitlines()[-1]))


def llamacpp_figures(told: dict[str, Any]) -> Figures:
    """From the line that benchmarks/llamacpp_arrival.py prints."""
    seen = Seen(**{name: told.pop(name) for name in ("alone", "together", "before", "during", "worst")})
    return {**told, **seen.figures()}


def _model_file(model: str) -> Path:
    from engine.weights.catalogue import resolve_model

    return resolve_model(model).path.resolve()


def _table(ways: dict[str, Figures]) -> Table:
    table = Table(title="milliseconds")
    rows = ("gap_before_ms_p50", "gap_during_ms_p50", "gap_during_ms_worst", "alone_first_token_ms", "first_token_ms")
    for name in ("way", "gap before p50", "during p50", "worst", "alone", "beside", "ratio", "of target"):
        table.add_column(name, justify="left" if name == "way" else "right")
    for way, found in ways.items():
        table.add_row(
            way,
            *(shown(found[row]) for row in rows),
            shown(found["first_token_ratio"], ".2f"),
            shown(found["worst_to_target"], ".2f"),
        )
    return table


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of("arrival", __doc__)
    parser.add_argument("--ways", default="octavo", help="of those above, with commas between them [%(default)s]")
    parser.add_argument("--streams", type=int, default=7, help="[%(default)s]")
    parser.add_argument("--stream-tokens", type=int, default=3000, help="of each stream at most [%(default)s]")
    parser.add_argument("--prompt-tokens", type=int, default=4000, help="[%(default)s]")
    parser.add_argument("--before", type=float, default=3.0, help="seconds until the prompt comes [%(default)s]")
    parser.add_argument("--repeats", type=int, default=3, help="[%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="of the prompts [%(default)s]")
    baseline = Path(os.environ.get("OCTAVO_BASELINE", DEFAULT_BASELINE))
    parser.add_argument("--baseline", type=Path, default=baseline, help="[$OCTAVO_BASELINE or %(default)s]")
    arguments = parser.parse_args(given)
    arguments.ways = arguments.ways.split(",")
    if unknown := set(arguments.ways) - set(WAYS):
        parser.error(f"there is no way {unknown.pop()}; there are {', '.join(WAYS)}")
    return arguments


def main(given: Sequence[str] | None = None) -> None:
    """Run the command line."""
    arguments = _arguments(given)
    warn_if_busy()
    run = {
        "octavo": lambda: _octavo(arguments, ()),
        "whole": lambda: _octavo(arguments, (WHOLE_FLAG,)),
        "llama.cpp": lambda: _llamacpp(arguments, 0),
        "flash": lambda: _llamacpp(arguments, 1),
    }
    ways = {way: run[way]() for way in arguments.ways}
    tell(arguments, {"ways": ways}, _table(ways))


if __name__ == "__main__":
    main()
