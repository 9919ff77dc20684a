"""A bounded load generator: so many requests, so many at once, at most so long; prints a table of latencies."""

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

import httpx

from clients.client import DEFAULT_URL, ApiError, AsyncClient

MAX_REQUESTS = 100_000
MAX_CONCURRENCY = 1024
MAX_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A closed loop: each of `concurrency` callers sends its next request when its last one is answered."""

    model: str
    requests: int = 32
    concurrency: int = 8
    prompt_tokens: int = 128
    output_tokens: int = 64
    vocabulary: int = 1000  # prompts are random ids below this, different in each request
    seed: int = 0
    seconds: float = 600.0  # what is unfinished then is given up

    def __post_init__(self) -> None:
        _require("requests", self.requests, 1, MAX_REQUESTS)
        _require("concurrency", self.concurrency, 1, MAX_CONCURRENCY)
        _require("prompt_tokens", self.prompt_tokens, 1, 1_000_000)
        _require("output_tokens", self.output_tokens, 1, 1_000_000)
        _require("vocabulary", self.vocabulary, 2, 2**31)
        _require("seconds", self.seconds, 0.001, MAX_SECONDS)

    def prompts(self) -> Iterator[list[int]]:
        draw = random.Random(self.seed)
        for _ in range(self.requests):
            yield [draw.randrange(1, self.vocabulary) for _ in range(self.prompt_tokens)]


def _require(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} must be between {least} and {most}, not {value}.")


@dataclass(slots=True)
class Measurements:
    """Seconds, as the client saw them."""

    first_token: list[float] = field(default_factory=list)
    between_tokens: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    output_tokens: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    unfinished: int = 0
    elapsed: float = 0.0

    def note_error(self, name: str) -> None:
        self.errors[name] = self.errors.get(name, 0) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Milliseconds and rates; null where nothing was measured."""

    requests: int
    completed: int
    unfinished: int
    errors: dict[str, int]
    seconds: float
    prompt_tokens: int
    output_tokens: int
    output_tokens_per_second: float
    requests_per_second: float
    ttft_ms_p50: float | None
    ttft_ms_p99: float | None
    inter_token_ms_p50: float | None
    inter_token_ms_p99: float | None
    request_ms_p50: float | None
    request_ms_p99: float | None


async def run_load(client: AsyncClient, plan: Plan) -> Report:
    """Play the plan against a server; never sends more than plan.requests, never runs past plan.seconds."""
    measured = Measurements()
    prompts = plan.prompts()  # shared: a caller takes the next one

    async def caller() -> None:
        for prompt in prompts:
            await _measure_one(client, plan, prompt, measured)

    started = time.perf_counter()
    callers = [asyncio.create_task(caller()) for _ in range(min(plan.concurrency, plan.requests))]
    _, late = await asyncio.wait(callers, timeout=plan.seconds)
    measured.elapsed = time.perf_counter() - started
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    for task in set(callers) - late:
        task.result()
    measured.unfinished = plan.requests - len(measured.whole) - sum(measured.errors.values())
    return report(plan, measured)


async def _measure_one(client: AsyncClient, plan: Plan, prompt: list[int], measured: Measurements) -> None:
    try:
        await _stream_one(client, plan, prompt, measured)
    except ApiError as error:
        measured.note_error(f"{error.status} {error.code}")
    except httpx.HTTPError as error:
        measured.note_error(type(error).__name__)


async def _stream_one(client: AsyncClient, plan: Plan, prompt: list[int], measured: Measurements) -> None:
    started = last = time.perf_counter()
    seen = False
    stream = client.stream_completion(
        plan.model,
        prompt,
        max_tokens=plan.output_tokens,
        temperature=0,
        ignore_eos=True,
        stream_options={"include_usage": True},
    )
    async for chunk in stream:
        now = time.perf_counter()
        if chunk["choices"] and chunk["choices"][0]["text"]:
            (measured.between_tokens if seen else measured.first_token).append(now - last)
            seen, last = True, now
        if usage := chunk.get("usage"):
            measured.prompt_tokens += usage["prompt_tokens"]
            measured.output_tokens += usage["completion_tokens"]
    measured.whole.append(time.perf_counter() - started)


def report(plan: Plan, measured: Measurements) -> Report:
    return Report(
        requests=plan.requests,
        completed=len(measured.whole),
        unfinished=measured.unfinished,
        errors=measured.errors,
        seconds=round(measured.elapsed, 3),
        prompt_tokens=measured.prompt_tokens,
        output_tokens=measured.output_tokens,
        output_tokens_per_second=round(measured.output_tokens / measured.elapsed, 2),
        requests_per_second=round(len(measured.whole) / measured.elapsed, 3),
        ttft_ms_p50=percentile_ms(measured.first_token, 50),
        ttft_ms_p99=percentile_ms(measured.first_token, 99),
        inter_token_ms_p50=percentile_ms(measured.between_tokens, 50),
        inter_token_ms_p99=percentile_ms(measured.between_tokens, 99),
        request_ms_p50=percentile_ms(measured.whole, 50),
        request_ms_p99=percentile_ms(measured.whole, 99),
    )


def percentile_ms(seconds: Sequence[float], percent: int) -> float | None:
    """The nearest-rank percentile, in milliseconds."""
    if not seconds:
        return None
    rank = max(1, -(-len(seconds) * percent // 100))
    return round(sorted(seconds)[rank - 1] * 1e3, 3)


def table(result: Report) -> str:
    def row(name: str, p50: float | None, p99: float | None) -> str:
        shown = ["-" if value is None else f"{value:,.1f}" for value in (p50, p99)]
        return f"{name:<24}{shown[0]:>12}{shown[1]:>12}"

    lines = [
        f"{result.completed} of {result.requests} requests in {result.seconds:.2f} s"
        f" ({result.unfinished} unfinished, {sum(result.errors.values())} failed)",
        f"{'milliseconds':<24}{'p50':>12}{'p99':>12}",
        row("time to first token", result.ttft_ms_p50, result.ttft_ms_p99),
        row("between tokens", result.inter_token_ms_p50, result.inter_token_ms_p99),
        row("whole request", result.request_ms_p50, result.request_ms_p99),
        f"{result.output_tokens_per_second:,.1f} output tokens/s, {result.requests_per_second:,.2f} requests/s",
        *(f"failed: {count} x {name}" for name, count in sorted(result.errors.items())),
    ]
    return "\n".join(lines)


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m clients.load", description=__doc__)
    parser.add_argument("--url", default=DEFAULT_URL, help="the server, without /v1")
    parser.add_argument("--model", help="default: the first that the server lists")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=600.0, help="give up what is unfinished after this time")
    parser.add_argument("--seed", type=int, default=0, help="of the random prompts")
    parser.add_argument("--json", action="store_true", help="print one JSON object, not a table")
    return parser.parse_args(given)


async def _run(arguments: argparse.Namespace) -> Report:
    async with AsyncClient(arguments.url) as client:
        cards = await client.models()
        card = next((card for card in cards if card["id"] == arguments.model), cards[0])
        plan = Plan(
            model=arguments.model or card["id"],
            requests=arguments.requests,
            concurrency=arguments.concurrency,
            prompt_tokens=arguments.prompt_tokens,
            output_tokens=arguments.output_tokens,
            vocabulary=card["meta"]["n_vocab"],
            seed=arguments.seed,
            seconds=arguments.seconds,
        )
        return await run_load(client, plan)


def main(given: Sequence[str] | None = None) -> int:
    arguments = _arguments(given)
    try:
        result = asyncio.run(_run(arguments))
    except (ApiError, httpx.HTTPError, ValueError) as error:
        print(f"load: {error}", file=sys.stderr)
        return 1
    print(json.dumps(asdict(result)) if arguments.json else table(result))
    return 0 if result.completed == result.requests else 1


if __name__ == "__main__":
    sys.exit(main())
