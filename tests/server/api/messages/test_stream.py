"""The stream of POST /v1/messages: its events by the SDK's types, and the same message as without a stream."""

import json
from typing import Any

import anthropic
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from engine.errors import EngineFaultError
from engine.text.formats.parts import CallArguments, CallBegin, CallEnd, Content, Reasoning
from server.api.messages.answers import MessageAnswer, MessageEvent
from server.settings import ServingOptions
from tests.server.api.messages.anthropic_harness import ASK, anthropic_client
from tests.server.harness import http_client
from tests.server.scripted.engine import ScriptedModel, scripted_model
from tests.server.scripted.parted import parted_model, random_answer, script_of

EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)


async def events(model: ScriptedModel, options: ServingOptions | None = None, **fields: Any) -> list[Any]:
    """The events as data, each under the name in its `event` line."""
    async with http_client(model, options) as client:
        response = await client.post("/v1/messages", json={**ASK, **fields, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    found = []
    for frame in response.text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in frame.split("\n") if line and not line.startswith(":"))
        if lines:
            found.append(json.loads(lines["data"]))
            assert found[-1]["type"] == lines["event"]
            MessageEvent.model_validate(found[-1])
    return found


async def test_the_events_of_an_answer_in_their_order() -> None:
    call = (CallBegin(0, "look"), CallArguments(0, '{"a":'), CallArguments(0, "1}"), CallEnd(0))
    found = await events(parted_model(Reasoning("Hm"), Reasoning("."), Content("Hi"), *call))
    told = [event for event in found if event["type"] != "ping"]
    for event in told:
        EVENT.validate_python(event)
    assert [(event["type"], event.get("index"), event.get("delta", {}).get("type")) for event in told] == [
        ("message_start", None, None),
        ("content_block_start", 0, None),
        ("content_block_delta", 0, "thinking_delta"),
        ("content_block_delta", 0, "thinking_delta"),
        ("content_block_delta", 0, "signature_delta"),
        ("content_block_stop", 0, None),
        ("content_block_start", 1, None),
        ("content_block_delta", 1, "text_delta"),
        ("content_block_stop", 1, None),
        ("content_block_start", 2, None),
        ("content_block_delta", 2, "input_json_delta"),
        ("content_block_delta", 2, "input_json_delta"),
        ("content_block_stop", 2, None),
        ("message_delta", None, None),
        ("message_stop", None, None),
    ]
    assert told[0]["message"]["content"] == []
    assert told[-2]["delta"]["stop_reason"] == "tool_use"


async def test_hidden_thinking_sends_its_signature_only() -> None:
    thinking = {"type": "enabled", "budget_tokens": 5, "display": "omitted"}
    found = await events(parted_model(Reasoning("secret"), Content("Hi")), thinking=thinking)
    assert "secret" not in json.dumps(found)
    assert [event["delta"]["type"] for event in found if event["type"] == "content_block_delta"] == [
        "signature_delta",
        "text_delta",
    ]


async def test_a_stream_says_what_the_whole_message_says() -> None:
    model = parted_model()
    async with anthropic_client(model) as client:
        for seed in range(100):
            model.service.script = script_of(random_answer(seed))
            whole = await client.messages.create(**ASK)
            MessageAnswer.model_validate(whole.model_dump(exclude_unset=True))
            async with client.messages.stream(**ASK) as stream:
                streamed = await stream.get_final_message()
            assert comparable(streamed) == comparable(whole), seed


def comparable(message: Message) -> dict[str, Any]:
    """The message without names that are drawn anew, and without what only a whole one carries."""
    data = message.model_dump(exclude={"timings"}, exclude_none=True)
    del data["id"]
    for block in data["content"]:
        block.pop("id", None)
    return data


async def test_the_text_helper_of_the_sdk() -> None:
    async with (
        anthropic_client(scripted_model("Hello", " ", "world")) as client,
        client.messages.stream(**ASK) as stream,
    ):
        assert [text async for text in stream.text_stream] == ["Hello", " ", "world"]


async def test_silence_is_filled_with_pings() -> None:
    found = await events(scripted_model("a", 0.25, "b"), ServingOptions(ping_seconds=0.05))
    assert {"type": "ping"} in found
    assert found[-1]["type"] == "message_stop"


async def test_a_fault_within_the_stream_is_an_error_event() -> None:
    found = await events(scripted_model("a", EngineFaultError("Broken.")))
    assert found[-1] == {"type": "error", "error": {"type": "api_error", "message": "Broken."}}
    assert "message_stop" not in [event["type"] for event in found]


async def test_the_sdk_raises_the_error_of_a_stream() -> None:
    async with anthropic_client(scripted_model("a", EngineFaultError("Broken."))) as client:
        with pytest.raises(anthropic.APIStatusError, match="Broken"):
            async with client.messages.stream(**ASK) as stream:
                await stream.until_done()


async def test_a_bad_request_is_refused_before_the_stream() -> None:
    async with anthropic_client(scripted_model()) as client:
        with pytest.raises(anthropic.BadRequestError):
            await client.messages.create(**{**ASK, "max_tokens": 0}, stream=True)
