"""The load generator: its bounds, its prompts, what it measures, and what it prints."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from clients.load import main
from clients.load_plan import Plan
from clients.load_report import curve, percentile_ms, report, table
from clients.load_run import Record, Run, run_load
from clients.streamed import Streamed
from tests.server.harness import LiveServer, live_server
from tests.server.scripted.engine import ScriptedModel, ScriptedService, scripted_model

SMALL = Plan(model="scripted", requests=10, concurrency=3, prompt_tokens=5, output_tokens=4, vocabulary=256)


@pytest.fixture
def server() -> Iterator[LiveServer]:
    with live_server(scripted_model(*"abcdef")) as running:
        yield running


def answered(sent: float, *times: float, cached: int = 0) -> Record:
    """A record of a request whose tokens came at these times."""
    usage = {"prompt_tokens": 9, "completion_tokens": len(times), "prompt_tokens_details": {"cached_tokens": cached}}
    return Record(0, Streamed(sent, times[-1] + 0.5, list(times), ["x"] * len(times), usage=usage))


def played(*records: Record, seconds: float = 10.0, plan: Plan = SMALL) -> Run:
    return Run(replace(plan, requests=len(records)), 100.0, seconds, 0.5, list(records))


async def test_every_request_of_the_plan_is_sent_once_with_its_lengths(server: LiveServer) -> None:
    result = report(await run_load(server.url, SMALL))
    assert (result.completed, result.unfinished, result.errors) == (10, 0, {})
    assert (result.prompt_tokens, result.output_tokens) == (50, 40)
    requests = server.model.service.requests
    assert {request.prompt.tokens for request in requests} == {tuple(prompt) for prompt in SMALL.prompts()}
    assert all(request.ignore_eos and not request.skip_special_tokens for request in requests)


async def test_never_more_at_once_than_the_concurrency_and_time_is_a_hard_bound() -> None:
    with live_server(scripted_model("a", asyncio.Event())) as server:  # no request is ever answered to its end
        run = await run_load(server.url, replace(SMALL, requests=12, seconds=1.0))
    result = report(run)
    assert len(server.model.service.requests) == len(run.records) == 3
    assert (result.completed, result.unfinished, result.request_ms_p50) == (0, 12, None)


async def test_refusals_are_counted_by_code() -> None:
    with live_server(ScriptedModel(ScriptedService(max_open=0))) as server:
        result = report(await run_load(server.url, replace(SMALL, requests=3)))
    assert result.errors == {"429 rate_limit_exceeded": 3}
    assert "failed: 3 x 429" in table(result) and "3 callers: failed: 3 x 429" in curve([result])


def test_requests_that_decode_at_once_are_told_from_those_that_wait() -> None:
    batched = report(played(answered(100, 101, 103), answered(100, 101, 102, 103)))
    assert (batched.decoding_most, batched.decoding_mean, batched.full_tokens_per_second) == (2, 2.0, 1.5)
    queued = report(played(answered(100, 101, 103), answered(100, 103, 104, 105)))
    assert (queued.decoding_most, queued.decoding_mean) == (1, 1.0)
    assert "1.0 requests decoded at once, 1 at most" in table(queued)


@pytest.mark.parametrize(
    "field", ["requests", "concurrency", "prompt_tokens", "output_tokens", "shared_prefix", "seconds"]
)
def test_bounds_are_checked(field: str) -> None:
    for value in (-1, 10**9):
        with pytest.raises(ValueError, match=field):
            replace(SMALL, **{field: value})  # type: ignore[arg-type]


def test_prompts_share_their_prefix_and_nothing_more() -> None:
    prompts = list(replace(SMALL, prompt_tokens=20, shared_prefix=12).prompts())
    assert len({tuple(prompt[:12]) for prompt in prompts}) == 1
    assert len({tuple(prompt[12:]) for prompt in prompts}) == len(prompts)


def test_the_control_differs_from_the_first_token_on_and_only_there() -> None:
    plan = replace(SMALL, prompt_tokens=20, shared_prefix=12)
    shared, cold = list(plan.prompts()), list(replace(plan, cold=True).prompts())
    assert [prompt[1:] for prompt in cold] == [prompt[1:] for prompt in shared]
    assert len({prompt[0] for prompt in cold}) == len(cold)


def test_a_prompt_holds_only_ids_of_the_vocabulary() -> None:
    for plan in (SMALL, replace(SMALL, requests=600, cold=True)):
        assert {token for prompt in plan.prompts() for token in prompt} <= set(range(1, 256))


def test_percentiles_are_of_the_nearest_rank() -> None:
    seconds = [index / 1000 for index in range(1, 101)]
    assert (percentile_ms(seconds, 50), percentile_ms(seconds, 99), percentile_ms([0.002], 99)) == (50.0, 99.0, 2.0)
    assert percentile_ms([], 50) is None


def test_rates_come_from_the_elapsed_time() -> None:
    run = played(answered(100, 101, 102), answered(100, 101, 103, cached=7), seconds=2.0)
    result = report(run)
    assert (result.output_tokens_per_second, result.requests_per_second) == (2.0, 1.0)
    assert (result.ttft_ms_p50, result.inter_token_ms_p50, result.inter_token_ms_p99) == (1000.0, 1000.0, 2000.0)
    assert (result.prompt_tokens, result.cached_tokens, result.client_cpu_percent) == (18, 7, 25.0)
    assert "7 of 18 prompt tokens from the prefix cache" in table(result)


def test_a_curve_has_a_line_for_each_load() -> None:
    results = [report(played(answered(100, 101, 102), plan=replace(SMALL, concurrency=c))) for c in (1, 2, 4)]
    head, *rows = curve(results).splitlines()
    assert [row.split()[:3] for row in rows] == [[str(c), "0.2", "1,000.0"] for c in (1, 2, 4)]
    assert len({len(line) for line in (head, *rows)}) == 1


def test_the_command_prints_a_table_or_json(server: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--url", server.url, "--requests", "2", "--prompt-tokens", "3", "--output-tokens", "2"]
    assert main([*common, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["completed"] == 2
    assert main(common) == 0
    assert "2 of 2 requests" in capsys.readouterr().out


def test_a_sweep_runs_each_number_of_callers_on_prompts_of_its_own(
    server: LiveServer, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--url", server.url, "--requests", "4", "--prompt-tokens", "6", "--output-tokens", "2", "--seed", "5"]
    assert main([*common, "--concurrency", "1,2,4", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    seen = [(line["concurrency"], line["completed"], line["seed"]) for line in lines]
    assert seen == [(1, 4, 5), (2, 4, 6), (4, 4, 7)]
    assert len({request.prompt for request in server.model.service.requests}) == 12
    assert main([*common, "--concurrency", "1,2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_runs_without_a_seed_share_no_prompt(server: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(["--url", server.url, "--requests", "1", "--output-tokens", "2"]) == 0
    first, second = server.model.service.requests
    assert first.prompt != second.prompt


def test_the_log_has_a_line_for_each_request(server: LiveServer, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    arguments = ["--requests", "3", "--concurrency", "2", "--output-tokens", "4", "--prompt-tokens", "7", "--seed", "1"]
    assert main(["--url", server.url, *arguments, "--log", str(log)]) == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["request"], line["concurrency"]) for line in lines] == [(0, 2), (1, 2), (2, 2)]
    for line in lines:
        assert 0 <= line["start"] <= line["first_token"] <= line["last_token"] <= line["end"]
        assert (line["prompt_tokens"], line["output_tokens"], line["error"]) == (7, 4, None)


def test_a_server_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", "http://127.0.0.1:1"]) == 1
    assert capsys.readouterr().err.startswith("load: ")


def test_callers_that_are_no_number_are_one_line(server: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", server.url, "--concurrency", "1,many"]) == 1
    assert "not '1,many'" in capsys.readouterr().err
