"""POST /v1/responses without a stream, by way of the OpenAI SDK, whose types are the judge of every answer."""

from typing import Any

import openai
import pytest
from openai.types.responses import (
    Response,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseReasoningItem,
)
from pydantic import BaseModel

from engine.errors import EngineFaultError
from engine.text.formats.parts import CallArguments, CallBegin, CallEnd, Content, Reasoning
from server.settings import ServingOptions
from tests.server.harness import http_client, openai_client
from tests.server.scripted.engine import PlainTemplate, ScriptedModel, scripted_model
from tests.server.scripted.parted import parted_model

ASK: dict[str, Any] = {"model": "scripted", "input": "Hi"}
TOOL: Any = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}
CALL = (CallBegin(0, "look"), CallArguments(0, '{"where": '), CallArguments(0, '"up\\n"}'), CallEnd(0))


async def answer(scripted: ScriptedModel, /, **fields: Any) -> Response:
    async with openai_client(scripted) as client:
        response: Response = await client.responses.create(**{**ASK, **fields})
    return Response.model_validate(response.model_dump(by_alias=True), strict=True)


async def test_text() -> None:
    response = await answer(scripted_model("Hello", " world"))
    assert response.id.startswith("resp_")
    assert (response.object, response.status, response.model) == ("response", "completed", "scripted")
    assert response.output_text == "Hello world"
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (len("user: Hi\nassistant: "), 2)
    assert (response.error, response.incomplete_details) == (None, None)


async def test_thinking_text_and_calls_are_items_in_their_order() -> None:
    model = parted_model(Reasoning("Let me"), Reasoning(" see."), Content("I "), Content("look."), *CALL)
    thought, said, call = (await answer(model, tools=[TOOL])).output
    assert isinstance(thought, ResponseReasoningItem) and thought.content is not None
    assert (thought.content[0].text, thought.summary) == ("Let me see.", [])
    assert isinstance(said, ResponseOutputMessage) and said.content[0].type == "output_text"
    assert said.content[0].text == "I look."
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.name, call.arguments, call.status) == ("look", '{"where": "up\n"}'.replace("\n", "\\n"), "completed")


async def test_what_was_asked_is_said_again() -> None:
    fields: dict[str, Any] = {
        "instructions": "Be brief.",
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 5,
        "metadata": {"k": "v"},
        "tools": [TOOL],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_schema", "name": "o", "schema": {"type": "object"}}},
        "store": False,
    }
    async with http_client(scripted_model("x")) as client:
        response = (
            await client.post("/v1/responses", json={**ASK, **fields, "text": {"format": {"type": "text"}}})
        ).json()
        formed = (await client.post("/v1/responses", json={**ASK, "text": fields["text"]})).json()
    assert {key: response[key] for key in fields if key not in ("tools", "reasoning", "text")} == {
        key: value for key, value in fields.items() if key not in ("tools", "reasoning", "text")
    }
    assert response["tools"][0]["name"] == "look"
    assert response["reasoning"]["effort"] == "low"
    assert formed["text"] == fields["text"]


async def test_an_answer_cut_by_length_is_incomplete() -> None:
    response = await answer(scripted_model("a", "b", "c"), max_output_tokens=2)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None and response.incomplete_details.reason == "max_output_tokens"
    assert isinstance(response.output[0], ResponseOutputMessage) and response.output[0].status == "incomplete"
    assert response.output_text == "ab"


async def test_a_call_cut_by_length_is_sent_as_far_as_it_came() -> None:
    response = await answer(parted_model(*CALL[:2]), tools=[TOOL], max_output_tokens=2)
    call = response.output[0]
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.arguments, call.status) == ('{"where": ', "incomplete")


async def test_what_is_asked_for_reaches_the_engine() -> None:
    model = scripted_model("x")
    await answer(model, temperature=0.25, top_p=0.5, max_output_tokens=3, extra_body={"seed": 9, "top_k": 4})
    request = model.service.requests[0]
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.25, 0.5, 4, 9)
    assert (request.max_tokens, len(model.service.requests)) == (3, 1)


async def test_logprobs_are_those_of_the_text() -> None:
    model = parted_model(Reasoning("Hm."), Content("a"), Content("b"), *CALL)
    response = await answer(model, include=["message.output_text.logprobs"], top_logprobs=2)
    said = response.output[1]
    assert isinstance(said, ResponseOutputMessage) and said.content[0].type == "output_text"
    assert said.content[0].logprobs is not None
    assert [len(one.top_logprobs) for one in said.content[0].logprobs] == [2, 2]
    assert all(one.logprob <= 0 and bytes(one.bytes).decode() == one.token for one in said.content[0].logprobs)


async def test_parse_with_a_model_of_pydantic() -> None:
    class Weather(BaseModel):
        sky: str

    model = scripted_model('{"sky": ', '"blue"}')
    async with openai_client(model) as client:
        parsed = await client.responses.parse(**ASK, text_format=Weather)
    assert parsed.output_parsed == Weather(sky="blue")
    assert model.constraints.grammars


async def test_a_conversation_with_a_tool_by_sending_the_output_back() -> None:
    model = parted_model(Reasoning("Hm."), Content("I look."), *CALL)
    async with openai_client(model) as client:
        first = await client.responses.create(**ASK, tools=[TOOL], store=False)
        call: Any = first.output[2]
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "sky"}
        turns: Any = [{"role": "user", "content": "Hi"}, *first.output, result]
        await client.responses.create(model="scripted", input=turns, tools=[TOOL])
    assert isinstance(model.template, PlainTemplate)
    messages, _ = model.template.calls[-1]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert (messages[1]["content"], messages[1]["reasoning_content"]) == ("I look.", "Hm.")


async def test_unknown_and_idle_parameters_are_listed() -> None:
    body = {
        **ASK,
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi", "detail": "x"}], "phase": "p"}],
        "novel": 1,
        "truncation": "auto",
        "service_tier": "auto",
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"summary": "auto"},
        "text": {"verbosity": "low", "tone": "dry"},
    }
    async with http_client(scripted_model("x")) as client:
        response = await client.post("/v1/responses", json=body)
    assert response.status_code == 200, response.text
    assert set(response.headers["x-ignored-params"].split(",")) == {
        *("novel", "truncation", "service_tier", "include.reasoning.encrypted_content", "reasoning.summary"),
        *("text.verbosity", "text.tone", "input[].phase", "input[].content[].detail"),
    }


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tools": [{**TOOL, "name": "a b"}]}, "tools[0].name"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "other"}}, "tool_choice.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "item_reference", "id": "m"}]}, "input[0]"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input[0].call_id"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"reasoning": {"effort": "endless"}}, "reasoning.effort"),
        ({"text": {"format": {"type": "json_schema", "name": "a b", "schema": {}}}}, "text.format.name"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"previous_response_id": "resp_x"}, "previous_response_id"),
    ],
)
async def test_a_bad_request_is_refused_by_name(body: dict[str, Any], param: str) -> None:
    async with http_client(scripted_model("x")) as client:
        response = await client.post("/v1/responses", json={**ASK, **body})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


async def test_strict_params_refuse_what_would_be_ignored() -> None:
    async with http_client(scripted_model("x"), ServingOptions(strict_params=True)) as client:
        response = await client.post("/v1/responses", json={**ASK, "truncation": "auto"})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "truncation")


async def test_an_unknown_model_is_not_found() -> None:
    with pytest.raises(openai.NotFoundError, match="scripted"):
        await answer(scripted_model(), model="ghost")


async def test_a_fault_of_ours_is_a_server_error() -> None:
    with pytest.raises(openai.InternalServerError, match="Broken"):
        await answer(scripted_model("a", EngineFaultError("Broken.")))


@pytest.mark.parametrize("path", ["/v1/responses/input_tokens", "/responses/input_tokens"])
async def test_tokens_are_counted_as_the_engine_would_be_asked(path: str) -> None:
    model = scripted_model("x")
    body = {**ASK, "instructions": "Be brief."}
    async with http_client(model) as client:
        counted = (await client.post(path, json=body)).json()
        asked = (await client.post("/v1/responses", json=body)).json()
    assert counted == {"object": "response.input_tokens", "input_tokens": asked["usage"]["input_tokens"]}
    assert len(model.service.requests) == 1


async def test_tokens_are_counted_by_the_sdk_without_a_model_and_beyond_the_context() -> None:
    async with openai_client(scripted_model()) as client:
        counted = await client.responses.input_tokens.count(input="x" * 5000)
    assert counted.input_tokens > 5000


@pytest.mark.parametrize(
    ("instructions", "place"),
    [("be kind", "input[0] (user) with 30 tokens."), ("z" * 40, "instructions (system) with 40 tokens.")],
)
async def test_a_prompt_that_is_too_long_names_the_biggest_item_by_its_own_place(instructions: str, place: str) -> None:
    items = [{"role": "user", "content": "x" * 30}, {"role": "user", "content": "go on"}]
    async with http_client(ScriptedModel(context_length=50)) as client:
        answer = await client.post("/v1/responses", json={**ASK, "input": items, "instructions": instructions})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "input")
    assert error["message"].endswith(f"; the biggest message is {place}")
    assert error["n_prompt_tokens"] > error["n_ctx"] == 50
