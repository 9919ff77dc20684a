"""The load generator: its bounds and its arithmetic."""

import asyncio
import json

import pytest

from clients.load import Measurements, Plan, main, percentile_ms, report, run_load, table
from tests.clients.test_client import client_of
from tests.server.harness import live_server
from tests.server.scripted_engine import ScriptedModel, ScriptedService, scripted_model


async def test_every_request_of_the_plan_is_sent_once_with_its_lengths() -> None:
    model = scripted_model(*"abcdef")
    plan = Plan(model="scripted", requests=10, concurrency=3, prompt_tokens=5, output_tokens=4, vocabulary=256)
    async with await client_of(model) as client:
        result = await run_load(client, plan)
    assert (result.completed, result.unfinished, result.errors) == (10, 0, {})
    assert (result.prompt_tokens, result.output_tokens) == (50, 40)
    assert len({request.prompt for request in model.service.requests}) == 10
    assert all(len(request.prompt) == 5 and request.ignore_eos for request in model.service.requests)


async def test_never_more_at_once_than_the_concurrency() -> None:
    most = 0

    def script(request: object) -> list[str | float]:
        nonlocal most
        most = max(most, service.running + 1)
        return ["a", 0.001, "b"]

    service = ScriptedService(script)
    async with await client_of(ScriptedModel(service)) as client:
        await run_load(client, Plan(model="scripted", requests=12, concurrency=3, vocabulary=256))
    assert most == 3


async def test_time_is_a_hard_bound() -> None:
    async with await client_of(scripted_model("a", asyncio.Event())) as client:
        result = await run_load(client, Plan(model="scripted", requests=4, seconds=0.05, vocabulary=256))
    assert (result.completed, result.unfinished) == (0, 4)
    assert result.request_ms_p50 is None


async def test_refusals_are_counted_by_code() -> None:
    async with await client_of(ScriptedModel(ScriptedService(max_open=0))) as client:
        result = await run_load(client, Plan(model="scripted", requests=3, vocabulary=256))
    assert result.errors == {"429 rate_limit_exceeded": 3}
    assert "failed: 3 x 429" in table(result)


@pytest.mark.parametrize("field", ["requests", "concurrency", "prompt_tokens", "output_tokens", "seconds"])
def test_bounds_are_checked(field: str) -> None:
    for value in (0, 10**9):
        with pytest.raises(ValueError, match=field):
            Plan(model="m", **{field: value})


def test_percentiles_are_of_the_nearest_rank() -> None:
    seconds = [index / 1000 for index in range(1, 101)]
    assert (percentile_ms(seconds, 50), percentile_ms(seconds, 99), percentile_ms([0.002], 99)) == (50.0, 99.0, 2.0)
    assert percentile_ms([], 50) is None


def test_rates_come_from_the_elapsed_time() -> None:
    measured = Measurements(whole=[1.0, 1.0], first_token=[0.5, 0.5], output_tokens=100, elapsed=2.0)
    result = report(Plan(model="m", requests=2), measured)
    assert (result.output_tokens_per_second, result.requests_per_second) == (50.0, 1.0)
    assert "time to first token" in table(result) and "500.0" in table(result)


def test_the_command_prints_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    with live_server(scripted_model("a", "b")) as server:
        common = ["--url", server.url, "--requests", "2", "--prompt-tokens", "3", "--output-tokens", "2"]
        assert main([*common, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["completed"] == 2
        assert main(common) == 0
        assert "2 of 2 requests" in capsys.readouterr().out


def test_a_server_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", "http://127.0.0.1:1"]) == 1
    assert capsys.readouterr().err.startswith("load: ")
