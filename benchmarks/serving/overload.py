"""Far more requests at once than a server takes: who is served, who is refused, how fast, and what it costs.

    python -m benchmarks.serving.overload smollm2-135m --requests 2000

All connections are opened first; then all requests are written at once, and each is timed from there. Then, when all
are answered, one more is sent: it should be served as one was before. Resident memory is that of the server's process
and those that it started, sampled during the storm.
"""

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import uvloop
from rich.table import Table

from benchmarks.serving.program import Figures, median, milliseconds, parser_of, shown, tell, warn_if_busy
from benchmarks.serving.resident import sampled
from benchmarks.serving.server_process import ServerProcess, serving
from clients.exchange import Address, Exchange
from clients.load_report import percentile_ms

SETTLING_SECONDS = 3.0  # a server that is ready measures its bandwidth, and builds the validators of all routes
_OPEN_AT_ONCE = 100
_MEGABYTE = 1e6


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request of the storm."""

    status: int  # 0: the connection broke
    retry_after: str | None
    seconds: float  # from the storm's begin to the end of the answer

    @property
    def is_polite_refusal(self) -> bool:
        return self.status == 429 and self.retry_after is not None


async def storm(server: ServerProcess, bodies: Sequence[dict[str, object]]) -> list[Outcome]:
    """Send all bodies at once, each on a connection that is open already."""
    address = Address.of(server.url)
    requests = [address.post("/v1/completions", body) for body in bodies]
    callers = [Caller() for _ in bodies]
    for start in range(0, len(bodies), _OPEN_AT_ONCE):
        await asyncio.gather(*(caller.open(address) for caller in callers[start : start + _OPEN_AT_ONCE]))
    begin = time.perf_counter()
    for caller, request in zip(callers, requests, strict=True):
        caller.exchange.send(request)
    return await asyncio.gather(*(caller.outcome(begin) for caller in callers))


class Caller:
    """One connection, which notes when its answer's bytes come: tasks of thousands are woken later than that."""

    exchange: Exchange

    def __init__(self) -> None:
        self._last = 0.0

    async def open(self, address: Address) -> None:
        self.exchange = await Exchange.open(address, self._note)

    def _note(self, part: bytes) -> None:
        self._last = time.perf_counter()

    async def outcome(self, begin: float) -> Outcome:
        try:
            await self.exchange.wait()
        except OSError:
            return Outcome(0, None, time.perf_counter() - begin)
        return Outcome(self.exchange.status, self.exchange.headers.get("retry-after"), self._last - begin)


async def _one(server: ServerProcess, body: dict[str, object]) -> float:
    """The seconds of a request that is alone."""
    (outcome,) = await storm(server, [body])
    if outcome.status != 200:
        raise SystemExit(f"A request that was alone was answered with {outcome.status}.")
    return outcome.seconds


async def _measure(server: ServerProcess, arguments: argparse.Namespace) -> tuple[list[Outcome], Figures]:
    draw = random.Random(arguments.seed)

    def body() -> dict[str, object]:
        prompt = [draw.randrange(1, server.vocabulary) for _ in range(arguments.prompt_tokens)]
        return {
            "model": server.model,
            "prompt": prompt,
            "max_tokens": arguments.output_tokens,
            "temperature": 0,
            "ignore_eos": True,
        }

    await asyncio.sleep(SETTLING_SECONDS)
    alone = [await _one(server, body()) for _ in range(3)]
    async with sampled(server, 0.1) as samples:
        outcomes = await storm(server, [body() for _ in range(arguments.requests)])
        next_seconds = await _one(server, body())
    sizes = [size / _MEGABYTE for _, size in samples]
    return outcomes, {
        "alone_ms": milliseconds(median(alone)),
        "next_ms": milliseconds(next_seconds),
        "resident_mb_before": sizes[0],
        "resident_mb_after": sizes[-1],
        "resident_mb_growth": max(sizes) - sizes[0],
    }


def figures(outcomes: Sequence[Outcome]) -> Figures:
    """What became of the storm."""
    refused = [outcome.seconds for outcome in outcomes if outcome.status == 429]
    served = [outcome.seconds for outcome in outcomes if outcome.status == 200]
    return {
        "requests": len(outcomes),
        "finished": len(served),
        "refused_with_retry_after": sum(outcome.is_polite_refusal for outcome in outcomes),
        "by_status": dict(Counter(str(outcome.status) for outcome in outcomes)),
        "retry_after": sorted({o.retry_after for o in outcomes if o.retry_after is not None}),
        "refusal_ms_p50": percentile_ms(refused, 50),
        "refusal_ms_p99": percentile_ms(refused, 99),
        "refusal_ms_latest": percentile_ms(refused, 100),
        "last_served_seconds": max(served, default=None),
    }


def _table(found: Figures) -> Table:
    table = Table(f"{found['requests']} at once", "")
    for name, value in found.items():
        if name != "requests":
            table.add_row(name.replace("_", " "), shown(value))
    return table


def main(given: Sequence[str] | None = None) -> int:
    """Run the command line; 1 if a request was neither served nor refused with a time to come back."""
    parser = parser_of("overload", __doc__)
    parser.add_argument("--requests", type=int, default=2000, help="[%(default)s]")
    parser.add_argument("--prompt-tokens", type=int, default=16, help="[%(default)s]")
    parser.add_argument("--output-tokens", type=int, default=16, help="[%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="of the prompts [%(default)s]")
    arguments = parser.parse_args(given)
    warn_if_busy()
    with serving(arguments.model, arguments.serve) as server:
        outcomes, others = uvloop.run(_measure(server, arguments))
    found = {**figures(outcomes), **others}
    tell(arguments, found, _table(found))
    return int(any(outcome.status != 200 and not outcome.is_polite_refusal for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
