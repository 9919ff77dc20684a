"""Many streams for a long time: every answer is compared, byte for byte, with the one that its request gets alone.

    python -m benchmarks.serving.soak smollm2-135m --streams 64 --minutes 30

A fixed set of requests of random prompts, lengths, temperatures and seeds, half of them with a common prefix, is first
answered one at a time. Then each of the callers sends one of them after the other, as chance has it; some leave in the
middle of their answer, and what they got until then is compared as well. Resident memory is sampled; its slope is that
of the second half of the time.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import uvloop
from rich.table import Table

from benchmarks.serving.program import Figures, parser_of, shown, tell, warn_if_busy
from benchmarks.serving.resident import Sample, bytes_per_second, later_half, sampled
from benchmarks.serving.server_process import ServerProcess, serving
from clients.client import ApiError
from clients.exchange import Address
from clients.streamed import Streamed, ask

_PREFIX_TOKENS = 64
_PAUSE_AFTER_AN_ERROR = 0.5  # seconds; a refusal is no reason to hammer
_SHOWN_DIFFERENCES = 5
_MEGABYTE = 1e6
Body = dict[str, object]
Answer = tuple[str, str | None, int]  # text, why it ended, tokens


def cases(server: ServerProcess, arguments: argparse.Namespace) -> list[Body]:
    """The requests, the same for the same seed."""
    draw = random.Random(arguments.seed)

    def tokens(count: int) -> list[int]:
        return [draw.randrange(1, server.vocabulary) for _ in range(count)]

    prefix = tokens(_PREFIX_TOKENS)
    return [
        {
            "model": server.model,
            "prompt": (prefix if index % 2 else []) + tokens(draw.randint(1, arguments.prompt_tokens)),
            "max_tokens": draw.randint(2, arguments.output_tokens),
            "temperature": draw.choice((0.0, 0.7, 1.3)),
            "top_p": draw.choice((1.0, 0.9)),
            "seed": draw.getrandbits(31),
            "ignore_eos": draw.random() < 0.5,
        }
        for index in range(arguments.cases)
    ]


def complete(answer: Streamed) -> Answer:
    return answer.text, answer.finish_reason, answer.output_tokens


@dataclass(slots=True)
class Tally:
    """What came of the soak."""

    compared: int = 0
    left_early: int = 0  # of those compared
    output_tokens: int = 0
    cached_tokens: int = 0
    differences: list[dict[str, object]] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    def compare(self, case: int, answer: Streamed, alone: Answer) -> None:
        """An answer that was left early must be how the whole one begins."""
        self.compared += 1
        self.cached_tokens += answer.cached_tokens
        self.output_tokens += answer.output_tokens
        if answer.ended is None:
            self.left_early += 1
            is_same = alone[0].startswith(answer.text)
        else:
            is_same = complete(answer) == alone
        if not is_same:
            self.differences.append({"case": case, "got": complete(answer), "alone": alone})


async def _alone(server: ServerProcess, bodies: Sequence[Body]) -> list[Answer]:
    answers = []
    for body in bodies:
        answer = Streamed()
        await ask(Address.of(server.url), "/v1/completions", body, answer)
        answers.append(complete(answer))
    return answers


async def _caller(
    server: ServerProcess,
    bodies: Sequence[Body],
    alone: Sequence[Answer],
    draw: random.Random,
    end: float,
    tally: Tally,
) -> None:
    while time.monotonic() < end:
        case = draw.randrange(len(bodies))
        answer = Streamed()
        try:
            await _maybe_leave(server, bodies[case], answer, draw)
        except ApiError as error:
            tally.errors[f"{error.status} {error.code}"] += 1
            await asyncio.sleep(_PAUSE_AFTER_AN_ERROR)
        except OSError as error:
            tally.errors[type(error).__name__] += 1
            await asyncio.sleep(_PAUSE_AFTER_AN_ERROR)
        else:
            tally.compare(case, answer, alone[case])


async def _maybe_leave(server: ServerProcess, body: Body, answer: Streamed, draw: random.Random) -> None:
    """Read the answer, or, one time in ten, a few pieces of it."""
    reading = asyncio.create_task(ask(Address.of(server.url), "/v1/completions", body, answer))
    if draw.random() < 0.1:
        pieces = draw.randint(0, 5)
        while not reading.done() and len(answer.pieces) < pieces:
            await asyncio.sleep(0.02)
        reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading


async def _soak(server: ServerProcess, arguments: argparse.Namespace) -> tuple[Tally, list[Sample]]:
    bodies = cases(server, arguments)
    alone = await _alone(server, bodies)
    print(f"{len(alone)} answers were given alone; now {arguments.streams} at once.", file=sys.stderr)
    tally, seconds = Tally(), 60 * arguments.minutes
    end = time.monotonic() + seconds
    async with sampled(server, max(0.2, seconds / 600)) as samples:
        draws = [random.Random(f"{arguments.seed} {index}") for index in range(arguments.streams)]
        await asyncio.gather(*(_caller(server, bodies, alone, draw, end, tally) for draw in draws))
    server.wait_until_idle()
    return tally, samples


def figures(tally: Tally, samples: Sequence[Sample]) -> Figures:
    sizes = [size for _, size in samples]
    slope = bytes_per_second(later_half(samples))
    seconds = samples[-1][0] - samples[0][0]
    return {
        "seconds": round(seconds, 1),
        "compared": tally.compared,
        "left_early": tally.left_early,
        "different": len(tally.differences),
        "differences": tally.differences[:_SHOWN_DIFFERENCES],
        "errors": dict(tally.errors),
        "output_tokens_per_second": tally.output_tokens / seconds,
        "cached_tokens": tally.cached_tokens,
        "resident_mb_first": sizes[0] / _MEGABYTE,
        "resident_mb_last": sizes[-1] / _MEGABYTE,
        "resident_mb_most": max(sizes) / _MEGABYTE,
        "resident_mb_per_hour": None if slope is None else slope * 3600 / _MEGABYTE,
    }


def _table(found: Figures) -> Table:
    table = Table("soak", "")
    for name, value in found.items():
        table.add_row(name.replace("_", " "), shown(value))
    return table


def main(given: Sequence[str] | None = None) -> int:
    """Run the command line; 1 if an answer differed, or none was compared."""
    parser = parser_of("soak", __doc__)
    parser.add_argument("--streams", type=int, default=64, help="callers at once [%(default)s]")
    parser.add_argument("--lanes", type=int, default=16, help="of the server [%(default)s]")
    parser.add_argument("--minutes", type=float, default=30.0, help="[%(default)s]")
    parser.add_argument("--cases", type=int, default=48, help="different requests [%(default)s]")
    parser.add_argument("--prompt-tokens", type=int, default=200, help="of a prompt at most [%(default)s]")
    parser.add_argument("--output-tokens", type=int, default=48, help="of an answer at most [%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="of requests and callers [%(default)s]")
    arguments = parser.parse_args(given)
    warn_if_busy()
    with serving(arguments.model, [f"--lanes={arguments.lanes}", *arguments.serve]) as server:
        tally, samples = uvloop.run(_soak(server, arguments))
    found = figures(tally, samples)
    tell(arguments, found, _table(found))
    return int(bool(tally.differences) or not tally.compared)


if __name__ == "__main__":
    sys.exit(main())
