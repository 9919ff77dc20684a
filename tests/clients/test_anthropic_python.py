"""POST /v1/messages and its token counts by way of the Anthropic SDK, whose types judge every answer and event."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic, beta_tool
from anthropic.types import Message, RawMessageStreamEvent

from server.settings import ServingOptions
from tests.clients.conversation import (
    GREETING,
    GREETING_ANSWER,
    GREETING_THOUGHT,
    MODEL,
    PARIS,
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
from tests.clients.judging import judged, judged_as
from tests.server.harness import LiveServer, live_server
from tests.server.scripted.engine import ScriptedModel, ScriptedService

KEY = "key-of-a-test"
ASK: dict[str, Any] = {"model": MODEL, "max_tokens": 1000}
TOOLS: Any = [{"name": TOOL_NAME, "description": TOOL_DESCRIPTION, "input_schema": TOOL_SCHEMA}]
THINKING: Any = {"type": "enabled", "budget_tokens": 1024}


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with conversation_server(ServingOptions(api_keys=(KEY,), drain_seconds=0)) as server:
        yield server


@pytest.fixture
def client(server: LiveServer) -> Iterator[Anthropic]:
    with Anthropic(base_url=server.url, api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
async def async_client(server: LiveServer) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(base_url=server.url, api_key=KEY, max_retries=0) as client:
        yield client


def user(content: Any) -> Any:
    return {"role": "user", "content": content}


def results_of(message: Message) -> list[Any]:
    """The assistant's turn and what its calls gave."""
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": WEATHER[str(block.input["town"])]}
        for block in message.content
        if block.type == "tool_use"
    ]
    assert len(results) == 2
    return [message.to_param(), user(results)]


def text_of(message: Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def test_an_answer_with_its_thinking(client: Anthropic) -> None:
    message = judged(client.messages.create(**ASK, system="Be kind.", messages=[user(GREETING)], thinking=THINKING))
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[0].model_dump()["thinking"] == GREETING_THOUGHT
    assert (text_of(message), message.stop_reason) == (GREETING_ANSWER, "end_turn")


def test_every_event_of_a_stream_is_of_its_type(client: Anthropic) -> None:
    stream = client.messages.create(**ASK, messages=[user(WEATHER_QUESTION)], tools=TOOLS, stream=True)
    events = [judged_as(RawMessageStreamEvent, event) for event in stream]
    assert (events[0].type, events[-1].type) == ("message_start", "message_stop")


def test_the_stream_helper_collects_the_whole_answer(client: Anthropic) -> None:
    with client.messages.stream(**ASK, messages=[user(GREETING)], thinking=THINKING) as stream:
        assert "".join(stream.text_stream) == GREETING_ANSWER
        final = judged_as(Message, stream.get_final_message())
    whole = client.messages.create(**ASK, messages=[user(GREETING)], thinking=THINKING)
    assert final.to_dict()["content"] == whole.to_dict()["content"]
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_calls_and_their_results(client: Anthropic) -> None:
    messages = [user(WEATHER_QUESTION)]
    first = judged(client.messages.create(**ASK, messages=messages, tools=TOOLS))
    assert first.stop_reason == "tool_use"
    messages += results_of(first)
    counted = judged(client.messages.count_tokens(model=MODEL, messages=messages, tools=TOOLS))
    second = judged(client.messages.create(**ASK, messages=messages, tools=TOOLS))
    assert (text_of(second), second.stop_reason) == (WEATHER_ANSWER, "end_turn")
    assert second.usage.input_tokens == counted.input_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_the_tool_runner_leads_the_conversation_by_itself(client: Anthropic, stream: bool) -> None:
    @beta_tool
    def get_weather(town: str) -> str:
        """The weather in a town now."""
        return WEATHER[town]

    runner: Any = client.beta.messages.tool_runner(
        **ASK, messages=[user(WEATHER_QUESTION)], tools=[get_weather], stream=stream
    )
    assert runner.until_done().content[-1].text == WEATHER_ANSWER


def test_parse_reads_data(client: Anthropic) -> None:
    assert client.messages.parse(**ASK, messages=[user(TOWN_QUESTION)], output_format=Town).parsed_output == PARIS
    with client.messages.stream(**ASK, messages=[user(TOWN_QUESTION)], output_format=Town) as stream:
        assert stream.get_final_message().parsed_output == PARIS


async def test_the_asynchronous_client_leads_the_same_conversation(async_client: AsyncAnthropic) -> None:
    messages = [user(WEATHER_QUESTION)]
    async with async_client.messages.stream(**ASK, messages=messages, tools=TOOLS) as stream:
        async for _ in stream:
            pass
        first: Any = judged_as(Message, await stream.get_final_message())
    assert first.content[0].thinking == WEATHER_THOUGHT
    messages += results_of(first)
    assert text_of(judged(await async_client.messages.create(**ASK, messages=messages, tools=TOOLS))) == WEATHER_ANSWER
    assert judged(await async_client.messages.count_tokens(model=MODEL, messages=messages)).input_tokens > 0


def test_a_key_that_is_wrong_is_an_authentication_error(server: LiveServer) -> None:
    with (
        Anthropic(base_url=server.url, api_key="another", max_retries=0) as stranger,
        pytest.raises(anthropic.AuthenticationError) as caught,
    ):
        stranger.messages.create(**ASK, messages=[user("Hi")])
    assert caught.value.type == "authentication_error"


@pytest.mark.parametrize("stream", [False, True])
def test_mistakes_have_errors_of_their_own_kind(client: Anthropic, stream: bool) -> None:
    with pytest.raises(anthropic.NotFoundError) as unknown:
        client.messages.create(model="nope", max_tokens=9, messages=[user("Hi")], stream=stream)
    with pytest.raises(anthropic.BadRequestError) as wrong:
        client.messages.create(model=MODEL, max_tokens=-1, messages=[user("Hi")], stream=stream)
    with pytest.raises(anthropic.BadRequestError) as long:
        client.messages.create(**ASK, messages=[user(TOO_LONG)], stream=stream)
    assert (unknown.value.type, wrong.value.type, long.value.type) == (
        "not_found_error",
        "invalid_request_error",
        "invalid_request_error",
    )


def test_a_full_queue_is_a_rate_limit_error_that_says_when_to_return() -> None:
    with (
        live_server(ScriptedModel(ScriptedService(max_open=0))) as server,
        Anthropic(base_url=server.url, api_key="unused", max_retries=0) as client,
        pytest.raises(anthropic.RateLimitError) as caught,
    ):
        client.messages.create(**ASK, messages=[user("Hi")])
    assert caught.value.type == "rate_limit_error"
    assert caught.value.response.headers["retry-after"] == "2"
