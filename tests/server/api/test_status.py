"""The routes that tell about the server: /slots, /props, /v1/capabilities; and the one that cancels."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import orjson
import pytest

from engine.run.status import EngineStatus, LaneStatus
from server.app import create_app
from server.fields.parameters import CHAT_PARAMETERS, COMPLETION_PARAMETERS
from server.serving import Serving
from server.settings import ServingOptions
from tests.server.harness import CHAT, http_client
from tests.server.scripted.engine import ScriptedModel, scripted_model


@asynccontextmanager
async def one_running(
    client: httpx.AsyncClient, model: ScriptedModel, **more: object
) -> AsyncIterator[asyncio.Task[httpx.Response]]:
    """A request that waits within its answer."""
    headers = more.pop("headers", {})
    request = client.post("/v1/chat/completions", json={**CHAT, **more}, headers=headers)  # type: ignore[arg-type]
    task = asyncio.create_task(request)
    while not model.service.running:
        await asyncio.sleep(0)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_slots_show_the_lanes_and_what_they_do() -> None:
    model = scripted_model(asyncio.Event())
    async with http_client(model) as client, one_running(client, model):
        slots = (await client.get("/slots")).json()
    assert [slot["id"] for slot in slots] == list(range(8))
    assert [slot["is_processing"] for slot in slots] == [True] + [False] * 7
    assert slots[0]["id_task"].startswith("chatcmpl-") and slots[0]["prompt_tokens"] > 0
    assert slots[1] == {**slots[1], "state": "idle", "id_task": None, "n_ctx": 4096}


async def test_a_slot_tells_the_kind_of_its_rows_and_what_the_cache_spared_it() -> None:
    model = scripted_model("x")
    lanes = [
        LaneStatus("fresh", prompt_tokens=10, computed_tokens=4, generated_tokens=0, cached_tokens=4),
        LaneStatus("decoding", prompt_tokens=10, computed_tokens=12, generated_tokens=3),
        LaneStatus("preempted", prompt_tokens=10, computed_tokens=8, generated_tokens=3, preemptions=2),
    ]
    model.service.condition = EngineStatus(lanes=4, running=tuple(lanes), waiting=0, blocks=9, free_blocks=0)
    async with http_client(model) as client:
        slots = (await client.get("/slots")).json()
    assert [slot["state"] for slot in slots] == ["prefill", "decode", "prefill", "idle"]
    assert [slot["cached_tokens"] for slot in slots] == [4, 0, 0, 0]
    assert [slot["preemptions"] for slot in slots] == [0, 0, 2, 0]


async def test_a_key_sees_of_others_lanes_only_that_they_are_busy() -> None:
    model = scripted_model(asyncio.Event())
    first, second = ({"Authorization": f"Bearer {key}"} for key in ("first", "second"))
    options = ServingOptions(api_keys=("first", "second"))
    async with http_client(model, options) as client, one_running(client, model, headers=first):
        own = (await client.get("/slots", headers=first)).json()
        others = (await client.get("/slots", headers=second)).json()
    assert own[0]["id_task"].startswith("chatcmpl-") and own[0]["prompt_tokens"] > 0
    nothing = {name: 0 for name in own[0] if name.endswith("_tokens") or name == "preemptions"}
    assert others[0] == {**own[0], **nothing, "state": "busy", "id_task": None}
    assert others[1:] == own[1:]


async def test_props_tell_the_model_the_defaults_and_the_limits() -> None:
    model = scripted_model("x")
    async with http_client(model, ServingOptions(max_n=3)) as client:
        props = (await client.get("/props")).json()
    assert model.template is not None
    assert props["chat_template"] == model.template.source
    assert props["default_generation_settings"]["n_ctx"] == 4096
    assert props["default_generation_settings"]["params"]["temperature"] == 1.0
    assert (props["total_slots"], props["model_alias"], props["limits"]["max_n"]) == (8, "scripted", 3)


async def test_capabilities_hold_every_parameter_once() -> None:
    async with http_client(scripted_model("x")) as client:
        answer = (await client.get("/v1/capabilities")).json()
    tables = {"/v1/chat/completions": CHAT_PARAMETERS, "/v1/completions": COMPLETION_PARAMETERS}
    for path, table in tables.items():
        lists = answer["parameters"][path]
        names = [*lists["enforced"], *lists["ignored"], *lists["refused"]]
        assert sorted(names) == sorted(table)
    assert "temperature" in answer["parameters"]["/v1/chat/completions"]["enforced"]
    assert (answer["model"], answer["unknown_parameters"]) == ("scripted", "ignored")


async def test_capabilities_of_a_model_without_a_template_and_of_a_strict_server() -> None:
    async with http_client(ScriptedModel(template=None), ServingOptions(strict_params=True)) as client:
        answer = (await client.get("/v1/capabilities")).json()
    assert answer["abilities"]["chat"] is False
    assert answer["unknown_parameters"] == "refused"


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_can_be_cancelled_by_its_request_id(stream: bool) -> None:
    model = scripted_model("Hello", asyncio.Event(), "never")
    headers = {"X-Request-Id": "mine"}
    async with http_client(model) as client, one_running(client, model, stream=stream, headers=headers) as running:
        answer = await client.post("/v1/requests/mine/cancel")
        ended = await running
    assert answer.status_code == 200
    assert answer.json()["cancelled"] == [model.service.requests[0].id] == model.service.aborted
    if stream:
        *_, error, done, rest = ended.text.split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        assert orjson.loads(error.removeprefix("data: "))["error"]["code"] == "request_cancelled"
    else:
        assert (ended.status_code, ended.json()["error"]["code"]) == (499, "request_cancelled")


async def test_an_answer_can_be_cancelled_by_its_own_id_without_the_prefix() -> None:
    model = scripted_model(asyncio.Event())
    async with http_client(model) as client, one_running(client, model):
        name = model.service.requests[0].id
        assert (await client.post(f"/requests/{name}/cancel")).json() == {"cancelled": [name]}


async def test_an_unknown_or_ended_request_is_404() -> None:
    model = scripted_model("x")
    async with http_client(model) as client:
        await client.post("/v1/chat/completions", json=CHAT, headers={"X-Request-Id": "mine"})
        for name in ("mine", model.service.requests[0].id, "never/was", "%00", "x" * 5000):
            answer = await client.post(f"/v1/requests/{name}/cancel")
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "request_not_found")
            assert len(answer.content) < 1000


async def test_only_the_same_key_may_cancel() -> None:
    model = scripted_model(asyncio.Event())
    options = ServingOptions(api_keys=("a", "b"))
    ours, theirs = {"X-Api-Key": "a"}, {"X-Api-Key": "b"}
    async with http_client(model, options) as client, one_running(client, model, headers=ours):
        path = f"/v1/requests/{model.service.requests[0].id}/cancel"
        assert (await client.post(path)).status_code == 401
        assert (await client.post(path, headers=theirs)).status_code == 404
        assert model.service.aborted == []
        assert (await client.post(path, headers=ours)).status_code == 200


@pytest.mark.parametrize("path", ["/slots", "/props", "/v1/capabilities"])
async def test_nothing_is_told_before_the_model_is_there(path: str) -> None:
    transport = httpx.ASGITransport(app=create_app(Serving(lambda _: scripted_model("x"))))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get(path)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
