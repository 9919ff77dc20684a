"""What a load came to: rates, percentiles, how much ran at once; as a table, or as a curve of several loads."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from clients.load_run import Run
from clients.overlap import overlap


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Milliseconds and rates; null where nothing was measured."""

    concurrency: int
    seed: int
    requests: int
    completed: int
    unfinished: int
    errors: dict[str, int]
    seconds: float
    prompt_tokens: int
    cached_tokens: int  # of the prompts' that the server did not compute
    output_tokens: int
    output_tokens_per_second: float
    full_tokens_per_second: float | None  # while as many decoded at once as ever did
    requests_per_second: float
    ttft_ms_p50: float | None
    ttft_ms_p99: float | None
    inter_token_ms_p50: float | None
    inter_token_ms_p99: float | None
    request_ms_p50: float | None
    request_ms_p99: float | None
    decoding_mean: float | None  # requests that decoded at once, while any did
    decoding_most: int
    client_cpu_percent: float  # of one core, which the server may have missed


def report(run: Run) -> Report:
    plan, records = run.plan, run.records
    complete = [record.answer for record in records if record.is_complete]
    errors = Counter(record.error for record in records if record.error is not None)
    first_tokens = [seconds for record in records if (seconds := record.answer.first_token_seconds) is not None]
    gaps = [gap for record in records for gap in record.answer.gaps]
    whole = [answer.ended - answer.sent for answer in complete if answer.ended is not None]
    decoding = overlap(decode for record in records if (decode := record.decode) is not None)
    output_tokens = sum(answer.output_tokens for answer in complete)
    return Report(
        concurrency=plan.concurrency,
        seed=plan.seed,
        requests=plan.requests,
        completed=len(complete),
        unfinished=plan.requests - len(complete) - errors.total(),
        errors=dict(errors),
        seconds=round(run.seconds, 3),
        prompt_tokens=sum(answer.prompt_tokens for answer in complete),
        cached_tokens=sum(answer.cached_tokens for answer in complete),
        output_tokens=output_tokens,
        output_tokens_per_second=round(output_tokens / run.seconds, 2),
        full_tokens_per_second=None if decoding.rate_at_most is None else round(decoding.rate_at_most, 2),
        requests_per_second=round(len(complete) / run.seconds, 3),
        ttft_ms_p50=percentile_ms(first_tokens, 50),
        ttft_ms_p99=percentile_ms(first_tokens, 99),
        inter_token_ms_p50=percentile_ms(gaps, 50),
        inter_token_ms_p99=percentile_ms(gaps, 99),
        request_ms_p50=percentile_ms(whole, 50),
        request_ms_p99=percentile_ms(whole, 99),
        decoding_mean=None if decoding.mean is None else round(decoding.mean, 2),
        decoding_most=decoding.most,
        client_cpu_percent=round(100 * run.client_cpu_seconds / run.seconds, 1),
    )


def percentile_ms(seconds: Sequence[float], percent: int) -> float | None:
    """The nearest-rank percentile, in milliseconds."""
    if not seconds:
        return None
    rank = max(1, -(-len(seconds) * percent // 100))
    return round(sorted(seconds)[rank - 1] * 1e3, 3)


def table(result: Report) -> str:
    """One load in full."""

    def row(name: str, p50: float | None, p99: float | None) -> str:
        return f"{name:<24}{_shown(p50):>12}{_shown(p99):>12}"

    lines = [
        f"{result.completed} of {result.requests} requests in {result.seconds:.2f} s"
        f" ({result.unfinished} unfinished, {sum(result.errors.values())} failed)",
        f"{'milliseconds':<24}{'p50':>12}{'p99':>12}",
        row("time to first token", result.ttft_ms_p50, result.ttft_ms_p99),
        row("between tokens", result.inter_token_ms_p50, result.inter_token_ms_p99),
        row("whole request", result.request_ms_p50, result.request_ms_p99),
        f"{result.output_tokens_per_second:,.1f} output tokens/s, {result.requests_per_second:,.2f} requests/s",
        f"{_shown(result.decoding_mean)} requests decoded at once, {result.decoding_most} at most,"
        f" then at {_shown(result.full_tokens_per_second)} tokens/s",
        f"{result.cached_tokens:,} of {result.prompt_tokens:,} prompt tokens from the prefix cache",
        *_failures(result),
    ]
    return "\n".join(lines)


def curve(results: Sequence[Report]) -> str:
    """A line for each load, by the number of callers."""
    head = ("callers", "tokens/s", "first token p50", "p99 ms", "gap p50", "p99 ms", "at once", "most", "then tokens/s")
    widths = [max(8, len(name)) + 2 for name in head]

    def line(cells: Sequence[str]) -> str:
        return "".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))

    rows = [
        line(
            [
                str(result.concurrency),
                _shown(result.output_tokens_per_second),
                *map(_shown, (result.ttft_ms_p50, result.ttft_ms_p99)),
                *map(_shown, (result.inter_token_ms_p50, result.inter_token_ms_p99)),
                _shown(result.decoding_mean),
                str(result.decoding_most),
                _shown(result.full_tokens_per_second),
            ]
        )
        for result in results
    ]
    failures = [
        f"{result.concurrency} callers: {text}"
        for result in results
        for text in (*_failures(result), *([f"{result.unfinished} unfinished"] if result.unfinished else []))
    ]
    return "\n".join([line(head), *rows, *failures])


def _failures(result: Report) -> list[str]:
    return [f"failed: {count} x {name}" for name, count in sorted(result.errors.items())]


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"
