"""Every endpoint by way of the OpenAI SDK for Python, whose types judge every answer and chunk."""

import base64
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion
from openai.types.responses import Response, ResponseItem, ResponseStreamEvent

from server.settings import ServingOptions
from tests.clients.conversation import (
    GREETING,
    GREETING_ANSWER,
    GREETING_THOUGHT,
    MODEL,
    OSLO_QUESTION,
    PARIS,
    TEXT,
    TEXT_CONTINUED,
    TOO_LONG,
    TOOL_DESCRIPTION,
    TOOL_NAME,
    TOOL_SCHEMA,
    TOWN_QUESTION,
    WEATHER,
    WEATHER_ANSWER,
    WEATHER_QUESTION,
    WEATHER_THOUGHT,
    Town,
    conversation_server,
)
from tests.clients.judging import judged, judged_as, judged_text
from tests.server.harness import LiveServer, live_server
from tests.server.scripted.embeddings import EMBEDDING_SIZE
from tests.server.scripted.engine import ScriptedModel, ScriptedService

FUNCTION: dict[str, Any] = {"name": TOOL_NAME, "description": TOOL_DESCRIPTION, "parameters": TOOL_SCHEMA}
CHAT_TOOLS: Any = [{"type": "function", "function": {**FUNCTION, "strict": True}}]
RESPONSE_TOOLS: Any = [{"type": "function", **FUNCTION, "strict": True}]
KEY = "key-of-a-test"


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with conversation_server(ServingOptions(api_keys=(KEY,), drain_seconds=0)) as server:
        yield server


@pytest.fixture
def client(server: LiveServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
async def async_client(server: LiveServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def user(text: str) -> Any:
    return {"role": "user", "content": text}


# -- chat


def test_a_chat_answer_with_its_reasoning(client: OpenAI) -> None:
    answer = judged(client.chat.completions.create(model=MODEL, messages=[user(GREETING)]))
    message: Any = answer.choices[0].message
    assert (message.content, message.reasoning_content) == (GREETING_ANSWER, GREETING_THOUGHT)
    assert answer.usage is not None and answer.usage.completion_tokens_details is not None
    assert answer.usage.completion_tokens_details.reasoning_tokens


def test_several_choices_with_logprobs(client: OpenAI) -> None:
    answer = judged(
        client.chat.completions.create(
            model=MODEL, messages=[user(GREETING)], n=3, logprobs=True, top_logprobs=2, seed=1
        )
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    for choice in answer.choices:
        assert choice.logprobs is not None and choice.logprobs.content
        assert all(len(token.top_logprobs) == 2 for token in choice.logprobs.content)


def test_a_streamed_chat_answer_with_logprobs_and_usage(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[user(GREETING)],
        n=2,
        logprobs=True,
        top_logprobs=1,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [judged(chunk) for chunk in stream]
    assert chunks[-1].choices == [] and chunks[-1].usage is not None
    for index in (0, 1):
        choices: Any = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
        deltas = [choice.delta for choice in choices]
        assert "".join(delta.content or "" for delta in deltas) == GREETING_ANSWER
        assert "".join(getattr(delta, "reasoning_content", "") for delta in deltas) == GREETING_THOUGHT
        assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["stop"]
        assert any(choice.logprobs and choice.logprobs.content for choice in choices)


def test_calls_and_their_results(client: OpenAI) -> None:
    messages: list[Any] = [user(WEATHER_QUESTION)]
    first = judged(client.chat.completions.create(model=MODEL, messages=messages, tools=CHAT_TOOLS))
    assert first.choices[0].finish_reason == "tool_calls"
    messages += _with_results(first)
    second = judged(client.chat.completions.create(model=MODEL, messages=messages, tools=CHAT_TOOLS))
    assert (second.choices[0].message.content, second.choices[0].finish_reason) == (WEATHER_ANSWER, "stop")


def _with_results(answer: ChatCompletion) -> list[Any]:
    """The assistant's turn and what its calls gave."""
    message = answer.choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": WEATHER[json.loads(call.function.arguments)["town"]]}
        for call in message.tool_calls or []
        if call.type == "function"
    ]
    assert len(results) == 2
    return [message.model_dump(exclude_none=True), *results]


def test_the_stream_helper_collects_calls_as_they_are_made_whole(client: OpenAI) -> None:
    with client.chat.completions.stream(model=MODEL, messages=[user(WEATHER_QUESTION)], tools=CHAT_TOOLS) as stream:
        events: list[Any] = list(stream)
        final: Any = stream.get_final_completion()
    for event in events:
        if event.type == "chunk":
            judged(event.chunk)
    done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert [(event.index, event.name, json.loads(event.arguments)["town"]) for event in done] == [
        (0, TOOL_NAME, "Paris"),
        (1, TOOL_NAME, "Oslo"),
    ]
    judged_as(ChatCompletion, final)
    assert [call.function.parsed_arguments for call in final.choices[0].message.tool_calls] == [
        {"town": town} for town in WEATHER
    ]


def test_a_named_tool_is_called_once(client: OpenAI) -> None:
    choice: Any = {"type": "function", "function": {"name": TOOL_NAME}}
    answer = judged(
        client.chat.completions.create(
            model=MODEL, messages=[user(OSLO_QUESTION)], tools=CHAT_TOOLS, tool_choice=choice
        )
    )
    calls = answer.choices[0].message.tool_calls
    assert calls is not None and len(calls) == 1


def test_parse_reads_data_and_the_arguments_of_tools(client: OpenAI) -> None:
    answer = client.chat.completions.parse(model=MODEL, messages=[user(TOWN_QUESTION)], response_format=Town)
    assert answer.choices[0].message.parsed == PARIS
    tools = [openai.pydantic_function_tool(Town, name="describe")]
    called = client.chat.completions.parse(
        model=MODEL, messages=[user(TOWN_QUESTION)], tools=tools, tool_choice="required"
    )
    assert called.choices[0].message.tool_calls is not None
    assert called.choices[0].message.tool_calls[0].function.parsed_arguments == PARIS
    with client.chat.completions.stream(model=MODEL, messages=[user(TOWN_QUESTION)], response_format=Town) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == PARIS


async def test_the_asynchronous_client_leads_the_same_conversation(async_client: AsyncOpenAI) -> None:
    messages: list[Any] = [user(WEATHER_QUESTION)]
    async with async_client.chat.completions.stream(model=MODEL, messages=messages, tools=CHAT_TOOLS) as stream:
        async for event in stream:
            if event.type == "chunk":
                judged(event.chunk)
        first: Any = await stream.get_final_completion()
    message = first.choices[0].message
    assert message.model_extra["reasoning_content"] == WEATHER_THOUGHT
    messages += [message.model_dump(exclude_none=True, exclude={"parsed": True, "tool_calls": {"__all__": "parsed"}})]
    messages += [
        {"role": "tool", "tool_call_id": call.id, "content": WEATHER[json.loads(call.function.arguments)["town"]]}
        for call in message.tool_calls
    ]
    stream_of_text = await async_client.chat.completions.create(model=MODEL, messages=messages, stream=True)
    pieces = [judged(chunk).choices[0].delta.content or "" async for chunk in stream_of_text]
    assert "".join(pieces) == WEATHER_ANSWER
    parsed = await async_client.chat.completions.parse(
        model=MODEL, messages=[user(TOWN_QUESTION)], response_format=Town
    )
    assert parsed.choices[0].message.parsed == PARIS


# -- text completions


def test_text_completions_whole_and_streamed(client: OpenAI) -> None:
    whole = judged_text(client.completions.create(model=MODEL, prompt=TEXT))
    stream = client.completions.create(
        model=MODEL, prompt=TEXT, stream=True, logprobs=1, stream_options={"include_usage": True}
    )
    chunks = [judged_text(chunk) for chunk in stream]
    assert whole.choices[0].text == TEXT_CONTINUED
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == TEXT_CONTINUED
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason] == ["stop"]
    assert chunks[-1].usage == whole.usage


def test_completions_echo_with_logprobs(client: OpenAI) -> None:
    answer = judged_text(client.completions.create(model=MODEL, prompt=TEXT, echo=True, logprobs=2))
    choice = answer.choices[0]
    assert choice.text == TEXT + TEXT_CONTINUED
    assert choice.logprobs is not None and choice.logprobs.tokens is not None
    assert "".join(choice.logprobs.tokens) == choice.text
    assert [figure is None for figure in choice.logprobs.token_logprobs or []] == [
        index == 0 for index in range(len(choice.logprobs.tokens))
    ]


def test_a_prompt_can_be_scored(client: OpenAI) -> None:
    answer = judged_text(client.completions.create(model=MODEL, prompt=TEXT, echo=True, logprobs=1, max_tokens=0))
    assert answer.choices[0].text == TEXT
    assert answer.choices[0].logprobs is not None
    assert len(answer.choices[0].logprobs.token_logprobs or []) == len(TEXT)


@pytest.mark.parametrize("prompt", [[TEXT, TEXT], [[79, 110], [79]], [79, 110, 99]])
def test_completions_of_lists_of_texts_and_tokens(client: OpenAI, prompt: Any) -> None:
    answer = judged_text(client.completions.create(model=MODEL, prompt=prompt, n=2))
    count = 2 if isinstance(prompt[0], int) else 2 * len(prompt)
    assert [choice.index for choice in answer.choices] == list(range(count))
    assert {choice.text for choice in answer.choices} == {TEXT_CONTINUED}


async def test_asynchronous_text_completions(async_client: AsyncOpenAI) -> None:
    stream = await async_client.completions.create(model=MODEL, prompt=TEXT, stream=True)
    assert "".join([judged_text(chunk).choices[0].text async for chunk in stream]) == TEXT_CONTINUED


# -- embeddings and models


def test_embeddings_as_numbers_and_as_base64(client: OpenAI) -> None:
    numbers = judged(client.embeddings.create(model=MODEL, input=["a", "b"], encoding_format="float"))
    decoded = judged(client.embeddings.create(model=MODEL, input=["a", "b"]))  # the SDK asks for base64, and decodes it
    written = client.embeddings.create(model=MODEL, input=["a", "b"], encoding_format="base64")
    for index, (one, other, text) in enumerate(zip(numbers.data, decoded.data, written.data, strict=True)):
        assert one.index == other.index == index and len(one.embedding) == EMBEDDING_SIZE
        assert np.array_equal(np.array(one.embedding, np.float32), np.array(other.embedding, np.float32))
        raw: Any = text.embedding
        assert base64.b64decode(raw) == np.array(one.embedding, np.float32).tobytes()


async def test_embeddings_of_tokens_cut_to_fewer_dimensions(async_client: AsyncOpenAI) -> None:
    answer = judged(await async_client.embeddings.create(model=MODEL, input=[[1, 2, 3], [4]], dimensions=4))
    assert [len(item.embedding) for item in answer.data] == [4, 4]
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (4, 4)


async def test_models(client: OpenAI, async_client: AsyncOpenAI) -> None:
    listed = [judged(card) for card in client.models.list()]
    assert [card.id for card in listed] == [MODEL, "gpt-4o"]
    assert judged(client.models.retrieve(MODEL)) == listed[0]
    assert [judged(card) async for card in async_client.models.list()] == listed


# -- responses


def test_a_response_its_items_and_its_end(client: OpenAI) -> None:
    response = judged(client.responses.create(model=MODEL, input=GREETING))
    assert response.output_text == GREETING_ANSWER
    assert [item.type for item in response.output] == ["reasoning", "message"]
    again = judged(client.responses.retrieve(response.id))
    assert again.output == response.output
    items = [judged_as(ResponseItem, item) for item in client.responses.input_items.list(response.id)]
    assert [item.type for item in items] == ["message"]
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_responses_with_calls_in_a_kept_conversation(client: OpenAI) -> None:
    first = judged(client.responses.create(model=MODEL, input=WEATHER_QUESTION, tools=RESPONSE_TOOLS))
    results: Any = _call_outputs(first)
    count = client.responses.input_tokens.count(
        model=MODEL, input=results, tools=RESPONSE_TOOLS, previous_response_id=first.id
    )
    second = judged(
        client.responses.create(model=MODEL, input=results, tools=RESPONSE_TOOLS, previous_response_id=first.id)
    )
    assert second.output_text == WEATHER_ANSWER
    assert second.usage is not None and second.usage.input_tokens == judged(count).input_tokens


def _call_outputs(response: Response) -> list[dict[str, str]]:
    outputs = [
        {
            "type": "function_call_output",
            "call_id": item.call_id,
            "output": WEATHER[json.loads(item.arguments)["town"]],
        }
        for item in response.output
        if item.type == "function_call"
    ]
    assert len(outputs) == 2
    return outputs


def test_a_conversation_that_the_client_keeps(client: OpenAI) -> None:
    items: list[Any] = [user(WEATHER_QUESTION)]
    first = judged(client.responses.create(model=MODEL, input=items, tools=RESPONSE_TOOLS, store=False))
    items += [item.model_dump(exclude_none=True) for item in first.output]
    items += _call_outputs(first)
    second = judged(client.responses.create(model=MODEL, input=items, tools=RESPONSE_TOOLS, store=False))
    assert second.output_text == WEATHER_ANSWER


def test_every_event_of_a_streamed_response_is_of_its_type(client: OpenAI) -> None:
    stream = client.responses.create(model=MODEL, input=WEATHER_QUESTION, tools=RESPONSE_TOOLS, stream=True)
    events = [judged_as(ResponseStreamEvent, event) for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"
    with client.responses.stream(model=MODEL, input=GREETING) as helper:
        deltas = [event.delta for event in helper if event.type == "response.output_text.delta"]
        final = helper.get_final_response()
    assert "".join(deltas) == GREETING_ANSWER == final.output_text


def test_a_response_can_be_parsed(client: OpenAI) -> None:
    assert client.responses.parse(model=MODEL, input=TOWN_QUESTION, text_format=Town).output_parsed == PARIS
    with client.responses.stream(model=MODEL, input=TOWN_QUESTION, text_format=Town) as stream:
        assert stream.get_final_response().output_parsed == PARIS


async def test_asynchronous_responses(async_client: AsyncOpenAI) -> None:
    first = judged(await async_client.responses.create(model=MODEL, input=WEATHER_QUESTION, tools=RESPONSE_TOOLS))
    results: Any = _call_outputs(first)
    async with async_client.responses.stream(
        model=MODEL, input=results, tools=RESPONSE_TOOLS, previous_response_id=first.id
    ) as stream:
        assert (await stream.get_final_response()).output_text == WEATHER_ANSWER
    judged_as(Response, await async_client.responses.retrieve(first.id))
    await async_client.responses.delete(first.id)


# -- errors


def test_a_key_that_is_wrong_is_an_authentication_error(server: LiveServer) -> None:
    with (
        OpenAI(base_url=f"{server.url}/v1", api_key="another", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError) as caught,
    ):
        stranger.models.list()
    assert (caught.value.type, caught.value.code) == ("authentication_error", "invalid_api_key")


@pytest.mark.parametrize("stream", [False, True])
def test_mistakes_have_errors_of_their_own_kind(client: OpenAI, stream: bool) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="nope", messages=[user("Hi")], stream=stream)
    with pytest.raises(openai.BadRequestError) as hot:
        client.chat.completions.create(model=MODEL, messages=[user("Hi")], temperature=9, stream=stream)
    with pytest.raises(openai.BadRequestError) as long:
        client.responses.create(model=MODEL, input=TOO_LONG, stream=stream)
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    assert (hot.value.type, hot.value.param) == ("invalid_request_error", "temperature")
    assert (long.value.code, long.value.param) == ("context_length_exceeded", "input")


def test_what_is_not_served_here_is_refused(client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input=GREETING)
    with pytest.raises(openai.BadRequestError) as cancelled:
        client.responses.cancel(response.id)
    with pytest.raises(openai.NotFoundError) as moderated:
        client.moderations.create(input="Hi")
    assert cancelled.value.type == "invalid_request_error"
    assert moderated.value.type == "not_found_error"


def test_a_full_queue_is_a_rate_limit_error_that_says_when_to_return() -> None:
    with (
        live_server(ScriptedModel(ScriptedService(max_open=0))) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as client,
    ):
        for ask in (
            lambda: client.chat.completions.create(model=MODEL, messages=[user("Hi")], stream=True),
            lambda: client.completions.create(model=MODEL, prompt="Hi"),
            lambda: client.responses.create(model=MODEL, input="Hi"),
            lambda: client.embeddings.create(model=MODEL, input="Hi"),
        ):
            with pytest.raises(openai.RateLimitError) as caught:
                ask()
            assert caught.value.response.headers["retry-after"] == "2"
