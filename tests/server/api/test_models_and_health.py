"""GET /v1/models, /health, /ready and /."""

import asyncio
import threading
from dataclasses import replace

import httpx
import pytest

from server.app import create_app
from server.serving import Progress, Serving
from tests.server.harness import http_client, openai_client
from tests.server.scripted.engine import LoadFailure, ScriptedModel, scripted_model


async def test_the_list_holds_the_model_and_its_aliases() -> None:
    async with openai_client(scripted_model("x")) as client:
        cards = [card async for card in client.models.list()]
    assert [card.id for card in cards] == ["scripted", "gpt-4o"]
    assert {card.object for card in cards} == {"model"}


async def test_a_card_tells_the_context_length() -> None:
    async with http_client(scripted_model("x")) as client:
        card = (await client.get("/v1/models/gpt-4o")).json()
    assert (card["id"], card["root"], card["max_model_len"]) == ("gpt-4o", "scripted", 4096)
    assert card["meta"] == {
        "n_ctx": 4096,
        "n_vocab": 1024,
        "size": 98_000_000,
        "architecture": "llama",
        "types": "Q4_1 81%, Q8_0 19%",
    }


async def test_an_id_may_hold_slashes() -> None:
    async with http_client(ScriptedModel(id="org/model-GGUF")) as client:
        assert (await client.get("/v1/models/org/model-GGUF")).json()["id"] == "org/model-GGUF"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/", "/health", "/ready"])
async def test_probes_answer_get_and_head(method: str, path: str) -> None:
    async with http_client(scripted_model("x")) as client:
        assert (await client.request(method, path)).status_code == 200


async def test_ready_shows_the_progress_of_the_load() -> None:
    reported, proceed = threading.Event(), threading.Event()

    def load(progress: Progress) -> ScriptedModel:
        progress("Loading", 0.42)
        reported.set()
        assert proceed.wait(10)
        return scripted_model("x")

    serving = Serving(load)
    transport = httpx.ASGITransport(app=create_app(serving))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        serving.start()
        assert await asyncio.to_thread(reported.wait, 10)
        loading, alive = await client.get("/ready"), await client.get("/health")
        proceed.set()
        await serving.wait_loaded()
        loaded = await client.get("/ready")
    assert (loading.status_code, loading.json()) == (503, {"status": "loading", "progress": 0.42})
    assert (alive.status_code, alive.json()) == (200, {"status": "ok"})
    assert (loaded.status_code, loaded.json()) == (200, {"status": "ready", "progress": 1.0})


async def test_the_error_that_ends_a_load_is_handed_on() -> None:
    def load(progress: Progress) -> ScriptedModel:
        raise LoadFailure("The file is broken.")

    serving = Serving(load)
    with pytest.raises(LoadFailure, match="broken"):
        await serving.wait_loaded()
    assert serving.phase == "failed"


async def test_a_dead_engine_is_told_by_both_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """BB-060."""
    model = scripted_model("x")
    status = model.service.status()
    async with http_client(model) as client:
        monkeypatch.setattr(model.service, "status", lambda: replace(status, alive=False))
        answers = [await client.get(path) for path in ("/health", "/ready")]
    assert [answer.status_code for answer in answers] == [503, 503]
    assert answers[0].json() == {"status": "dead"}
