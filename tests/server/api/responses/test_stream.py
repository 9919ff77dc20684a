"""The stream of POST /v1/responses: its events by the SDK's types, and the same response as without a stream."""

import json
from typing import Any

import httpx
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from engine.api.request import FinishReason
from engine.errors import EngineFaultError
from engine.text.formats.parts import CallArguments, CallBegin, CallEnd, Content, Reasoning
from server.api.responses.answers import ResponseAnswer, ResponseEvent
from tests.server.harness import http_client, openai_client
from tests.server.scripted.engine import ScriptedModel, scripted_model
from tests.server.scripted.parted import parted_model, random_answer, script_of

ASK: dict[str, Any] = {"model": "scripted", "input": "Hi"}
EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
DRAWN = ("id", "call_id", "created_at", "completed_at", "item_id", "timings")


async def events(model: ScriptedModel, **fields: Any) -> list[Any]:
    async with http_client(model) as client:
        return await streamed(client, **fields)


async def streamed(client: httpx.AsyncClient, **fields: Any) -> list[Any]:
    """The events as data; their numbers and the names in their `event` lines are checked here."""
    response = await client.post("/v1/responses", json={**ASK, **fields, "stream": True})
    assert response.status_code == 200, response.text
    found = []
    for frame in response.text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in frame.split("\n") if line and not line.startswith(":"))
        if lines:
            found.append(json.loads(lines["data"]))
            assert found[-1]["type"] == lines["event"]
            EVENT.validate_python(found[-1])
            ResponseEvent.model_validate(found[-1])
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def without_drawn(value: Any) -> Any:
    """The same data without names and times that are drawn anew for each answer."""
    if isinstance(value, dict):
        return {key: without_drawn(inner) for key, inner in value.items() if key not in DRAWN}
    return [without_drawn(inner) for inner in value] if isinstance(value, list) else value


async def test_the_events_of_an_answer_in_their_order() -> None:
    call = (CallBegin(0, "look"), CallArguments(0, '{"a":'), CallArguments(0, "1}"), CallEnd(0))
    found = await events(parted_model(Reasoning("Hm"), Reasoning("."), Content("Hi"), *call))
    assert [(event["type"].removeprefix("response."), event.get("output_index")) for event in found] == [
        ("created", None),
        ("in_progress", None),
        ("output_item.added", 0),
        ("content_part.added", 0),
        ("reasoning_text.delta", 0),
        ("reasoning_text.delta", 0),
        ("reasoning_text.done", 0),
        ("content_part.done", 0),
        ("output_item.done", 0),
        ("output_item.added", 1),
        ("content_part.added", 1),
        ("output_text.delta", 1),
        ("output_text.done", 1),
        ("content_part.done", 1),
        ("output_item.done", 1),
        ("output_item.added", 2),
        ("function_call_arguments.delta", 2),
        ("function_call_arguments.delta", 2),
        ("function_call_arguments.done", 2),
        ("output_item.done", 2),
        ("completed", None),
    ]
    assert found[0]["response"]["status"] == "in_progress"
    assert [event["item"] for event in found if event["type"] == "response.output_item.done"] == found[-1]["response"][
        "output"
    ]


async def test_a_stream_says_what_the_whole_response_says() -> None:
    model = parted_model()
    async with http_client(model) as client:
        for seed in range(100):
            model.service.script = script_of(random_answer(seed))
            fields = {"include": ["message.output_text.logprobs"], "top_logprobs": 2} if seed % 2 else {}
            whole = (await client.post("/v1/responses", json={**ASK, **fields})).json()
            ResponseAnswer.model_validate(whole)
            found = await streamed(client, **fields)
            assert without_drawn(found[-1]["response"]) == without_drawn(whole), seed
            assert_deltas_join(found)


def assert_deltas_join(found: list[Any]) -> None:
    """Every `done` says what the deltas before it said."""
    joined: dict[tuple[str, int], str] = {}
    for event in found:
        kind = event["type"].rpartition(".")[0]
        if event["type"].endswith(".delta"):
            key = (kind, event["output_index"])
            joined[key] = joined.get(key, "") + event["delta"]
        elif event["type"].endswith(("text.done", "arguments.done")):
            assert joined.get((kind, event["output_index"]), "") == event.get("text", event.get("arguments"))


async def test_the_stream_helper_of_the_sdk() -> None:
    model = scripted_model("Hello", " ", "world")
    async with openai_client(model) as client, client.responses.stream(**ASK) as stream:
        deltas = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        final = await stream.get_final_response()
    assert deltas == ["Hello", " ", "world"]
    assert final.output_text == "Hello world"


async def test_the_plain_stream_of_the_sdk() -> None:
    async with openai_client(parted_model(Reasoning("Hm."), Content("Hi"))) as client:
        stream: Any = await client.responses.create(**ASK, stream=True)
        last = [event async for event in stream][-1]
    assert last.type == "response.completed"
    assert Response.model_validate(last.response.model_dump()).output_text == "Hi"


async def test_an_answer_cut_by_length_ends_incomplete() -> None:
    found = await events(scripted_model("a", FinishReason.LENGTH))
    assert found[-1]["type"] == "response.incomplete"
    assert found[-1]["response"]["output"][0]["status"] == "incomplete"


async def test_a_fault_within_the_stream_ends_it_failed() -> None:
    found = await events(parted_model(Reasoning("Hm."), Content("Hi"), EngineFaultError("Broken.")))
    last = found[-1]
    assert last["type"] == "response.failed"
    assert (last["response"]["status"], last["response"]["error"]["message"]) == ("failed", "Broken.")
    assert [item["status"] for item in last["response"]["output"]] == ["completed", "incomplete"]
