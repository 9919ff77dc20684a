"""/metrics: the right figures, and a bounded number of them."""

import asyncio

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.run.status import EngineStatus, StepReport
from engine.weights.files.weights_file import WeightBytes
from server.routes import ENDPOINTS
from server.settings import ServingOptions
from server.wire.endpoint import Resources
from tests.server.harness import CHAT, http_client
from tests.server.scripted.engine import ScriptedModel, scripted_model

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def samples(client: httpx.AsyncClient) -> Samples:
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    families = text_string_to_metric_families(answer.text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


async def test_a_request_is_counted_with_its_tokens_and_times() -> None:
    async with http_client(scripted_model("a", "b", "c")) as client:
        for stream in (True, False):
            assert (await client.post("/v1/chat/completions", json={**CHAT, "stream": stream})).status_code == 200
        found = await samples(client)
    assert value(found, "octavo_requests_total", endpoint="/chat/completions", end="stop") == 2
    assert value(found, "octavo_generated_tokens_total") == 6
    assert value(found, "octavo_prompt_tokens_total") == 40
    assert value(found, "octavo_cached_tokens_total") == 0
    assert value(found, "octavo_time_to_first_token_seconds_count") == 2
    assert value(found, "octavo_inter_token_seconds_count") == 4
    assert value(found, "octavo_queue_seconds_count") == 2
    assert value(found, "octavo_requests_aborted_total") == 0
    assert value(found, "octavo_requests_open") == 0


async def test_what_is_true_now_is_read_from_the_engine() -> None:
    model = scripted_model(asyncio.Event())
    async with http_client(model) as client:
        running = asyncio.create_task(client.post("/v1/chat/completions", json=CHAT))
        while not model.service.running:
            await asyncio.sleep(0)
        found = await samples(client)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert value(found, "octavo_lanes") == 8
    assert value(found, "octavo_lanes_busy") == value(found, "octavo_requests_open") == 1
    assert value(found, "octavo_queue_length") == 0
    assert value(found, "octavo_model_info", model="scripted", fingerprint="fp_scripted", isa="generic") == 1


async def test_steps_are_counted_by_rows_and_tell_the_bandwidth() -> None:
    model = ScriptedModel()
    async with http_client(model) as client:
        for step in (StepReport(64, 0, 1, 0.5), StepReport(0, 3, 3, 0.01), StepReport(0, 3, 3, 0.01, 5, 2, 4)):
            for observer in model.service.observers:
                observer(step)
        found = await samples(client)
    assert value(found, "octavo_step_rows_sum", kind="prefill") == 64
    assert value(found, "octavo_step_rows_sum", kind="decode") == 6
    assert value(found, "octavo_step_rows_count", kind="decode") == 3
    assert value(found, "octavo_step_rows_sum", kind="draft") == 5
    assert value(found, "octavo_drafted_tokens_total") == 5
    assert value(found, "octavo_accepted_tokens_total") == 4
    assert value(found, "octavo_preemptions_total") == 2
    assert value(found, "octavo_step_seconds_total") == pytest.approx(0.52)
    assert value(found, "octavo_weight_bytes_read_total") == 3 * model.bytes_per_token
    assert value(found, "octavo_weight_bytes_per_second") == pytest.approx(model.bytes_per_token / 0.01)


async def test_a_step_of_a_mixture_reads_the_experts_that_its_rows_touch() -> None:
    model = ScriptedModel(weights=WeightBytes(1000, experts=6400, expert_count=64, active=1))
    async with http_client(model) as client:
        for observer in model.service.observers:
            observer(StepReport(0, 2, 2, 0.01))
        found = await samples(client)
    assert value(found, "octavo_weight_bytes_read_total") == pytest.approx(1000 + 6400 * (1 - (63 / 64) ** 2))


async def test_memory_cache_and_queue_are_told_as_the_engine_has_them() -> None:
    model = ScriptedModel()
    model.service.condition = EngineStatus(
        lanes=8,
        running=(),
        waiting=5,
        blocks=100,
        free_blocks=70,
        cached_blocks=60,
        looked_up_tokens=1000,
        hit_tokens=900,
        evicted_blocks=7,
        estimated_wait=2.5,
        itl_target_seconds=0.06,
    )
    async with http_client(model) as client:
        found = await samples(client)
    assert value(found, "octavo_queue_length") == 5
    assert value(found, "octavo_blocks") == 100
    assert value(found, "octavo_blocks_free") == 70
    assert value(found, "octavo_blocks_cached") == 60
    assert value(found, "octavo_cache_looked_up_tokens_total") == 1000
    assert value(found, "octavo_cache_hit_tokens_total") == 900
    assert value(found, "octavo_cache_evicted_blocks_total") == 7
    assert value(found, "octavo_estimated_wait_seconds") == 2.5
    assert value(found, "octavo_itl_target_seconds") == 0.06


async def test_what_clients_send_never_becomes_a_label() -> None:
    async with http_client(scripted_model("x")) as client:
        before = len(await samples(client))
        for index in range(50):
            await client.get(f"/v1/unknown/{index}")
            await client.request(f"METHOD{index}", "/v1/models")
            await client.get(f"/v1/models/name-{index}")
            await client.post(f"/v1/requests/{index}/cancel", headers={"X-Request-Id": f"r{index}"})
            await client.post("/v1/chat/completions", json={**CHAT, "model": f"m{index}"})
        found = await samples(client)
    assert value(found, "octavo_http_responses_total", endpoint="unknown", status="404") == 50
    assert value(found, "octavo_http_responses_total", endpoint="/models/{name}", status="404") == 50
    assert len(found) - before <= 6


def test_a_path_with_and_without_the_prefix_is_one_endpoint() -> None:
    endpoints = Resources(ENDPOINTS)
    for path, label in {
        "/v1/chat/completions": "/chat/completions",
        "/chat/completions": "/chat/completions",
        "/v1/models/org/name": "/models/{name}",
        "/v1/requests/a/b/cancel": "/requests/{id}/cancel",
        "/health": "/health",
        "/": "/",
        "/v1": "unknown",
        "/v2/models": "unknown",
    }.items():
        assert endpoints.label(path) == label


async def test_metrics_can_be_switched_off() -> None:
    async with http_client(scripted_model("x"), ServingOptions(metrics=False)) as client:
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200
        assert (await client.get("/metrics")).status_code == 404


async def test_a_scraper_may_ask_for_either_text_format() -> None:
    async with http_client(scripted_model("x")) as client:
        plain = await client.get("/metrics", headers={"Accept": "text/plain"})
        newer = await client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert plain.headers["content-type"].startswith("text/plain")
    assert newer.headers["content-type"].startswith("application/openmetrics-text")
    assert "octavo_build_info" in plain.text and newer.text.endswith("# EOF\n")


async def test_two_servers_in_one_process_do_not_share_figures() -> None:
    async with http_client(scripted_model("x")) as one, http_client(scripted_model("x")) as other:
        await one.post("/v1/chat/completions", json=CHAT)
        assert value(await samples(one), "octavo_generated_tokens_total") == 1
        assert value(await samples(other), "octavo_generated_tokens_total") == 0
