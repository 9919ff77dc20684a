"""Errors of the Messages API: its own shape, the statuses that its SDK tells apart, and the place in the request."""

from typing import Any

import anthropic
import pytest

from engine.errors import EngineFaultError
from server.settings import ServingOptions
from tests.server.api.messages.anthropic_harness import ASK, anthropic_client
from tests.server.harness import http_client
from tests.server.scripted.engine import ScriptedModel, ScriptedService, scripted_model

IMAGE = {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}
TOOL = {"name": "look", "input_schema": {"type": "object"}}


async def refusal(body: dict[str, Any], options: ServingOptions | None = None) -> str:
    """The message of a 400."""
    async with http_client(scripted_model("x"), options) as client:
        response = await client.post("/v1/messages", json={**ASK, **body})
    assert response.status_code == 400, response.text
    answer = response.json()
    assert answer == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": answer["error"]["message"]},
    }
    return str(answer["error"]["message"])


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE]}]}, "messages[0].content[1]"),
        ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "novel"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "messages[0].role"),
        ({"messages": []}, "messages"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"temperature": 1.01}, "temperature"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].name"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "other"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        ({"messages": [{"role": "user", "content": "refuse me"}]}, ""),
    ],
)
async def test_a_bad_request_is_told_where_it_is_bad(body: dict[str, Any], place: str) -> None:
    message = await refusal(body)
    assert place in message.replace(":", " ").split() or place == "" or f"'{place}'" in message, message


async def test_a_thread_is_refused_in_the_words_that_make_helpers_send_the_whole_conversation() -> None:
    async with anthropic_client(scripted_model("x")) as client:
        with pytest.raises(anthropic.BadRequestError) as caught:
            await client.messages.create(**ASK, extra_body={"thread": {"type": "create"}})
    assert caught.value.error_code == "thread_unsupported_request"


async def test_an_image_in_a_tools_result_is_refused_by_its_place() -> None:
    turns = [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [IMAGE]}]},
    ]
    assert "messages[1].content[0].content[0]" in await refusal({"messages": turns})


async def test_strict_params_refuse_what_would_be_ignored() -> None:
    assert "novel" in await refusal({"novel": 1}, ServingOptions(strict_params=True))


async def test_an_unknown_model_is_not_found() -> None:
    async with anthropic_client(scripted_model()) as client:
        with pytest.raises(anthropic.NotFoundError, match="scripted") as caught:
            await client.messages.create(**{**ASK, "model": "ghost"})
    assert caught.value.type == "not_found_error"


async def test_a_full_queue_is_a_rate_limit() -> None:
    model = ScriptedModel(ScriptedService(max_open=0))
    async with anthropic_client(model) as client:
        with pytest.raises(anthropic.RateLimitError) as caught:
            await client.messages.create(**ASK)
    assert caught.value.type == "rate_limit_error"
    assert int(caught.value.response.headers["retry-after"]) >= 1


async def test_a_fault_of_ours_is_an_api_error_that_is_not_repeated() -> None:
    async with http_client(scripted_model("a", EngineFaultError("Broken.")), raise_app_exceptions=False) as client:
        response = await client.post("/v1/messages", json=ASK)
    assert (response.status_code, response.headers["x-should-retry"]) == (500, "false")
    assert response.json() == {"type": "error", "error": {"type": "api_error", "message": "Broken."}}


async def test_errors_before_the_route_have_the_same_shape() -> None:
    options = ServingOptions(api_keys=("secret",))
    async with http_client(scripted_model("x"), options) as client:
        closed = await client.post("/v1/messages", json=ASK)
        opened = await client.post("/v1/messages", json=ASK, headers={"x-api-key": "secret"})
        method = await client.get("/v1/messages", headers={"x-api-key": "secret"})
        chat = await client.post("/v1/chat/completions", json={})
    assert (closed.status_code, opened.status_code, method.status_code) == (401, 200, 405)
    assert closed.json()["error"]["type"] == "authentication_error"
    assert method.json()["type"] == "error"
    assert "type" not in chat.json()


async def test_a_body_that_is_too_large_has_the_same_shape() -> None:
    async with http_client(scripted_model("x"), ServingOptions(max_body_bytes=10)) as client:
        response = await client.post("/v1/messages", json=ASK)
    assert response.status_code == 413
    assert response.json()["error"]["type"] == "request_too_large"


@pytest.mark.parametrize(
    ("system", "place"),
    [("be kind", "messages[0] (user) with 30 tokens."), ("z" * 40, "system (system) with 40 tokens.")],
)
async def test_a_prompt_that_is_too_long_names_the_biggest_message_by_its_own_place(system: str, place: str) -> None:
    turns = [{"role": "user", "content": "x" * 30}, {"role": "user", "content": "go on"}]
    async with http_client(ScriptedModel(context_length=50)) as client:
        answer = await client.post("/v1/messages", json={**ASK, "system": system, "messages": turns})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].endswith(f"; the biggest message is {place}")
