"""A request's place among the others: its turn, its caller and its division of the cache, by every route."""

import hashlib
from typing import Any

import pytest

from server.settings import ServingOptions
from tests.server.harness import CHAT, http_client
from tests.server.scripted.engine import scripted_model

ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": "scripted", "prompt": "Hi"},
    "/v1/responses": {"model": "scripted", "input": "Hi"},
    "/v1/messages": {**CHAT, "max_tokens": 5},
}


@pytest.mark.parametrize("path", ROUTES)
async def test_the_engine_hears_of_turn_salt_and_caller(path: str) -> None:
    model = scripted_model("x")
    async with http_client(model, ServingOptions(api_keys=("k",))) as client:
        for more in ({}, {"priority": -7.0, "cache_salt": "team a"}, {"priority": None, "cache_salt": None}):
            answer = await client.post(path, json={**ROUTES[path], **more}, headers={"Authorization": "Bearer k"})
            assert answer.status_code == 200 and "x-ignored-params" not in answer.headers
    caller = hashlib.sha256(b"k").digest()
    told = [(request.priority, request.cache_salt, request.caller) for request in model.service.requests]
    assert told == [(0, "", caller), (-7, "team a", caller), (0, "", caller)]


@pytest.mark.parametrize("path", ROUTES)
async def test_without_keys_there_is_one_caller(path: str) -> None:
    model = scripted_model("x")
    async with http_client(model) as client:
        await client.post(path, json=ROUTES[path], headers={"Authorization": "Bearer whatever"})
    assert model.service.requests[0].caller == b""


@pytest.mark.parametrize("path", [*ROUTES, "/v1/embeddings"])
@pytest.mark.parametrize(
    "fields",
    [
        {"priority": 1001},
        {"priority": -1001},
        {"priority": 1.5},
        {"priority": "1"},
        {"priority": True},
        {"cache_salt": ""},
        {"cache_salt": "x" * 129},
        {"cache_salt": "a@b"},
        {"cache_salt": "a/b"},
        {"cache_salt": "a\\b"},
        {"cache_salt": "a\0b"},
        {"cache_salt": 7},
    ],
)
async def test_what_is_out_of_bounds_is_named(path: str, fields: dict[str, Any]) -> None:
    model = scripted_model("x")
    body = ROUTES.get(path, {"model": "scripted", "input": "Hi"})
    async with http_client(model) as client:
        answer = await client.post(path, json={**body, **fields})
    error = answer.json()["error"]
    assert answer.status_code == 400 and next(iter(fields)) in error["message"]
    assert path == "/v1/messages" or error["param"] == next(iter(fields))
    assert model.service.requests == [] and model.service.embedded == []


async def test_all_answers_to_one_request_share_what_no_other_may() -> None:
    model = scripted_model("x")
    async with http_client(model) as client:
        for _ in range(2):
            await client.post("/v1/completions", json={**ROUTES["/v1/completions"], "n": 2, "cache_prompt": False})
    first, second, third, fourth = (request.cache_salt for request in model.service.requests)
    assert first == second != third == fourth
