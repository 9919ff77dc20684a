"""POST /v1/messages without a stream, by way of the Anthropic SDK, whose types are the judge of every answer."""

from typing import Any

import anthropic
import pytest
from anthropic.types import Message, TextBlock, ThinkingBlock, ToolUseBlock

from engine.api.request import FinishReason
from engine.text.formats.parts import CallArguments, CallBegin, CallEnd, Content, Reasoning
from tests.server.api.messages.anthropic_harness import ASK, anthropic_client
from tests.server.harness import http_client
from tests.server.scripted.engine import PlainTemplate, ScriptedModel, scripted_model
from tests.server.scripted.parted import parted_model

TOOL: Any = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}
CALL = (CallBegin(0, "look"), CallArguments(0, '{"where": '), CallArguments(0, '"up\\n"}'), CallEnd(0))


async def answer(scripted: ScriptedModel, /, **fields: Any) -> Message:
    async with anthropic_client(scripted) as client:
        message = await client.messages.create(**{**ASK, **fields})
    return Message.model_validate(message.model_dump(), strict=True)


async def test_text() -> None:
    message = await answer(scripted_model("Hello", " world"))
    assert message.id.startswith("msg_")
    assert (message.type, message.role, message.model) == ("message", "assistant", "scripted")
    assert [block.model_dump(exclude_none=True) for block in message.content] == [
        {"type": "text", "text": "Hello world"}
    ]
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert (message.usage.input_tokens, message.usage.output_tokens) == (len("user: Hi\nassistant: "), 2)


async def test_an_alias_is_answered_by_the_models_own_name() -> None:
    assert (await answer(scripted_model("x"), model="gpt-4o")).model == "scripted"


async def test_thinking_text_and_calls_are_blocks_in_their_order() -> None:
    model = parted_model(Reasoning("Let me"), Reasoning(" see."), Content("I "), Content("look."), *CALL)
    thinking, text, call = (await answer(model, tools=[TOOL])).content
    assert isinstance(thinking, ThinkingBlock) and thinking.thinking == "Let me see." and thinking.signature
    assert isinstance(text, TextBlock) and text.text == "I look."
    assert isinstance(call, ToolUseBlock) and (call.name, call.input) == ("look", {"where": "up\n"})
    assert call.id.startswith("toolu_")


async def test_calls_end_the_turn_for_tools() -> None:
    message = await answer(parted_model(*CALL, CallBegin(1, "look"), CallArguments(1, "{}"), CallEnd(1)), tools=[TOOL])
    assert message.stop_reason == "tool_use"
    assert len({block.id for block in message.content if isinstance(block, ToolUseBlock)}) == 2


async def test_the_answer_can_be_sent_back_as_it_came() -> None:
    model = parted_model(Reasoning("Hm."), Content("I look."), *CALL)
    async with anthropic_client(model) as client:
        first = await client.messages.create(**ASK, tools=[TOOL])
        result: Any = {"type": "tool_result", "tool_use_id": first.content[2].id, "content": "sky"}
        turns: Any = [*ASK["messages"], first.to_param(), {"role": "user", "content": [result]}]
        await client.messages.create(**{**ASK, "messages": turns}, tools=[TOOL])
    assert isinstance(model.template, PlainTemplate)
    messages, _ = model.template.calls[-1]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert (messages[1]["content"], messages[1]["reasoning_content"]) == ("I look.", "Hm.")


async def test_max_tokens() -> None:
    message = await answer(scripted_model("a", "b", "c"), max_tokens=2)
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 2)


async def test_an_answer_that_fills_the_context_says_so() -> None:
    message = await answer(scripted_model("a", FinishReason.LENGTH))
    assert message.stop_reason == "model_context_window_exceeded"


async def test_a_stop_sequence_is_told_and_cut_off() -> None:
    message = await answer(scripted_model("one ", "STOP", " two"), stop_sequences=["STOP"])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "STOP")
    assert [block.model_dump(exclude_none=True) for block in message.content] == [{"type": "text", "text": "one "}]


async def test_a_call_cut_short_keeps_what_was_complete() -> None:
    cut = (CallBegin(0, "look"), CallArguments(0, '{"a": 1, "b": "tw'), FinishReason.LENGTH)
    message = await answer(parted_model(*cut), tools=[TOOL], max_tokens=2)
    assert message.stop_reason == "max_tokens"
    assert [block.input for block in message.content if isinstance(block, ToolUseBlock)] == [{"a": 1}]


async def test_thinking_may_be_left_out() -> None:
    model = parted_model(Reasoning("secret"), Content("Hi"))
    message = await answer(model, thinking={"type": "enabled", "budget_tokens": 1024, "display": "omitted"})
    assert isinstance(message.content[0], ThinkingBlock)
    assert message.content[0].thinking == ""


async def test_thinking_tokens_are_counted() -> None:
    message = await answer(parted_model(Reasoning("a"), Reasoning("b"), Content("c")))
    assert message.usage.output_tokens_details is not None
    assert message.usage.output_tokens_details.thinking_tokens == 2


async def test_an_empty_answer_has_no_blocks() -> None:
    message = await answer(scripted_model())
    assert (message.content, message.stop_reason) == ([], "end_turn")


async def test_what_is_asked_for_reaches_the_engine() -> None:
    model = scripted_model("x")
    await answer(model, extra_body={"temperature": 0.25, "top_p": 0.5, "top_k": 7}, max_tokens=3, stop_sequences=["a"])
    request = model.service.requests[0]
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.25, 0.5, 7)
    assert (request.max_tokens, request.stop, len(model.service.requests)) == (3, ("a",), 1)


async def test_a_prefilled_answer_is_continued() -> None:
    model = scripted_model(" there")
    turns = [*ASK["messages"], {"role": "assistant", "content": "Well"}]
    await answer(model, messages=turns)
    assert bytes(model.service.requests[0].prompt).decode().endswith("assistant: Well")


async def test_structured_output_by_the_sdks_parse() -> None:
    import pydantic

    class Weather(pydantic.BaseModel):
        sky: str

    model = scripted_model('{"sky": ', '"blue"}')
    async with anthropic_client(model) as client:
        parsed = await client.messages.parse(**ASK, output_format=Weather)
    assert parsed.parsed_output == Weather(sky="blue")
    assert model.constraints.grammars


async def test_unknown_and_idle_parameters_are_listed() -> None:
    body = {
        **ASK,
        "metadata": {"user_id": "u"},
        "novel": 1,
        "output_config": {"tone": "dry"},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]}
        ],
        "tools": [{**TOOL, "cache_control": {"type": "ephemeral"}}],
    }
    async with http_client(scripted_model("x")) as client:
        response = await client.post("/v1/messages", json=body, headers={"anthropic-version": "2023-06-01"})
    assert response.status_code == 200
    listed = set(response.headers["x-ignored-params"].split(","))
    assert listed == {
        "metadata",
        "novel",
        "messages[].content[].cache_control",
        "tools[].cache_control",
        "output_config.tone",
    }


@pytest.mark.parametrize("path", ["/v1/messages", "/messages", "/v1/messages/"])
async def test_its_paths(path: str) -> None:
    async with http_client(scripted_model("x")) as client:
        assert (await client.post(path, json=ASK)).json()["type"] == "message"


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", "/messages/count_tokens"])
async def test_tokens_are_counted_as_the_engine_would_be_asked(path: str) -> None:
    model = scripted_model("x")
    body = {"model": "scripted", "messages": ASK["messages"], "system": "Be brief."}
    async with http_client(model) as client:
        counted = (await client.post(path, json=body)).json()
        asked = (await client.post("/v1/messages", json={**body, "max_tokens": 5})).json()
    assert counted == {"input_tokens": asked["usage"]["input_tokens"]}
    assert len(model.service.requests) == 1


async def test_tokens_are_counted_by_the_sdk_and_beyond_the_context() -> None:
    async with anthropic_client(scripted_model()) as client:
        count = await client.messages.count_tokens(model="scripted", messages=[{"role": "user", "content": "x" * 5000}])
    assert count.input_tokens > 5000


async def test_a_prompt_over_the_context_is_a_client_error() -> None:
    with pytest.raises(anthropic.BadRequestError, match="context"):
        await answer(scripted_model("x"), messages=[{"role": "user", "content": "x" * 5000}])
