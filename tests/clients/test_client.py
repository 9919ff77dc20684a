"""The client, driven against the real application without a socket."""

import httpx
import pytest

from clients.client import ApiError, AsyncClient, Client
from engine.errors import EngineFaultError
from server.app import create_app
from tests.server.harness import live_server, ready_serving
from tests.server.scripted.engine import ScriptedModel, scripted_model

MESSAGES = [{"role": "user", "content": "Hi"}]


async def client_of(model: ScriptedModel) -> AsyncClient:
    app = create_app(await ready_serving(model))
    return AsyncClient("http://localhost", transport=httpx.ASGITransport(app=app))


async def test_whole_and_streamed_answers_are_the_same_text() -> None:
    async with await client_of(scripted_model("Hello", " world")) as client:
        chat = await client.chat("scripted", MESSAGES, max_tokens=5)
        text = await client.complete("scripted", [1, 2, 3])
        chunks = [chunk async for chunk in client.stream_chat("scripted", MESSAGES)]
        pieces = [chunk async for chunk in client.stream_completion("scripted", "Say:")]
    assert chat["choices"][0]["message"]["content"] == text["choices"][0]["text"] == "Hello world"
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "Hello world"
    assert "".join(chunk["choices"][0]["text"] for chunk in pieces) == "Hello world"


async def test_models_and_readiness() -> None:
    async with await client_of(scripted_model("x")) as client:
        assert [card["id"] for card in await client.models()] == ["scripted", "gpt-4o"]
        assert await client.is_ready()


async def test_errors_carry_the_servers_words() -> None:
    async with await client_of(scripted_model("x")) as client:
        with pytest.raises(ApiError, match="temperature") as whole:
            await client.chat("scripted", MESSAGES, temperature=9)
        with pytest.raises(ApiError, match="not served here") as streamed:
            async for _ in client.stream_chat("nope", MESSAGES):
                pass
    assert (whole.value.status, whole.value.param) == (400, "temperature")
    assert (streamed.value.status, streamed.value.code) == (404, "model_not_found")


async def test_an_error_in_mid_stream_is_raised() -> None:
    async with await client_of(scripted_model("a", EngineFaultError("It broke."))) as client:
        with pytest.raises(ApiError, match="It broke"):
            async for _ in client.stream_chat("scripted", MESSAGES):
                pass


async def test_an_answer_in_another_shape_is_still_an_error() -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(502, text="bad gateway"))
    async with AsyncClient("http://localhost", transport=transport) as client:
        with pytest.raises(ApiError, match="502: bad gateway"):
            await client.models()


def test_the_blocking_client_makes_the_same_calls() -> None:
    with live_server(scripted_model("Hello", " world")) as server, Client(server.url, api_key="k") as client:
        assert client.is_ready()
        assert [card["id"] for card in client.models()] == ["scripted", "gpt-4o"]
        assert client.chat("scripted", MESSAGES)["choices"][0]["message"]["content"] == "Hello world"
        assert client.complete("scripted", "a")["choices"][0]["text"] == "Hello world"
        assert len(list(client.stream_chat("scripted", MESSAGES))) == 4
        assert len(list(client.stream_completion("scripted", "a"))) == 3
        with pytest.raises(ApiError, match="prompt"):
            list(client.stream_completion("scripted", ""))
