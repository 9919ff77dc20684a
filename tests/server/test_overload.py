"""More requests than places: the excess hears 429 at once, the rest is answered, and then all is as before."""

import asyncio

import httpx
import pytest

from server.app import create_app
from tests.server.harness import CHAT, http_client, ready_serving
from tests.server.scripted_engine import ScriptedModel, ScriptedService


async def test_of_two_thousand_at_once_the_accepted_finish_and_the_rest_is_told_when_to_return() -> None:
    """BB-061, G14."""
    gate = asyncio.Event()
    model = ScriptedModel(ScriptedService(["a", gate, "b"], max_open=132))
    serving = await ready_serving(model)
    transport = httpx.ASGITransport(app=create_app(serving))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        calls = [asyncio.create_task(client.post("/v1/chat/completions", json=CHAT)) for _ in range(2000)]
        while sum(call.done() for call in calls) < 2000 - 132:
            await asyncio.sleep(0.01)
        gate.set()
        answers = await asyncio.gather(*calls)
        after = await client.post("/v1/chat/completions", json=CHAT)
    accepted = [answer for answer in answers if answer.status_code == 200]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert (len(accepted), len(refused), after.status_code) == (132, 1868, 200)
    assert {answer.json()["choices"][0]["message"]["content"] for answer in accepted} == {"ab"}
    assert {answer.headers["retry-after"] for answer in refused} == {"2"}
    assert {answer.json()["error"]["code"] for answer in refused} == {"rate_limit_exceeded"}
    assert (len(serving.open_requests), model.service.running) == (0, 0)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_full_queue_is_a_429_before_any_stream_begins(stream: bool) -> None:
    model = ScriptedModel(ScriptedService(["a"], max_open=0))
    async with http_client(model) as client:
        answer = await client.post("/v1/chat/completions", json={**CHAT, "stream": stream})
    assert (answer.status_code, answer.headers["content-type"]) == (429, "application/json")
