"""What the prefix cache gave for a prompt: in every API's usage, and in the timings where it is asked for."""

from typing import Any

import httpx
import pytest

from server.settings import ServingOptions
from tests.server.harness import http_client
from tests.server.scripted.cache import ScriptedCache
from tests.server.scripted.engine import ScriptedModel, scripted_model

SYSTEM = {"role": "system", "content": "Be brief."}
TURNS = [
    SYSTEM,
    {"role": "user", "content": "What is a leaf?"},
    {"role": "assistant", "content": "Half of a page."},
    {"role": "user", "content": "And a page?"},
]


def caching_model() -> ScriptedModel:
    model = scripted_model("a", "b")
    model.service.cache = ScriptedCache()
    return model


def chat(messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"model": "scripted", "messages": messages, "cache_report": True, **more}


async def posted(client: httpx.AsyncClient, path: str, body: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer = await client.post(path, json=body, **more)
    assert answer.status_code == 200 and "x-ignored-params" not in answer.headers, answer.text
    whole: dict[str, Any] = answer.json()
    return whole


async def cached(client: httpx.AsyncClient, body: dict[str, Any], **more: Any) -> int:
    usage = (await posted(client, "/v1/chat/completions", body, **more))["usage"]
    assert usage["prompt_tokens"] > usage["prompt_tokens_details"]["cached_tokens"]
    return int(usage["prompt_tokens_details"]["cached_tokens"])


async def test_a_report_names_the_message_where_the_prompt_differs() -> None:
    async with http_client(caching_model()) as client:
        first = await posted(client, "/v1/chat/completions", chat(TURNS))
        again = await posted(client, "/v1/chat/completions", chat(TURNS))
        changed = [*TURNS[:2], {**TURNS[2], "content": "Half of a sheet."}, TURNS[3]]
        other = await posted(client, "/v1/chat/completions", chat(changed))
    prompt = first["usage"]["prompt_tokens"]
    assert first["timings"]["cache"] == {"cached_tokens": 0, "matched_tokens": 0, "miss": "cold", "message": None}
    assert again["timings"]["cache"] == {
        "cached_tokens": prompt - 1,
        "matched_tokens": prompt,
        "miss": "whole",
        "message": None,
    }
    report = other["timings"]["cache"]
    assert (report["miss"], report["message"]) == ("differs", 2)
    text = "system: Be brief.\nuser: What is a leaf?\nassistant: Half of a "
    assert report["matched_tokens"] == report["cached_tokens"] == len(text)  # the tokenizer has a token a character


async def test_a_difference_outside_all_messages_is_no_message_s() -> None:
    async with http_client(caching_model()) as client:
        await posted(client, "/v1/chat/completions", chat(TURNS))
        fewer = await posted(client, "/v1/chat/completions", chat(TURNS[:2]))
    assert (fewer["timings"]["cache"]["miss"], fewer["timings"]["cache"]["message"]) == ("whole", None)
    async with http_client(caching_model()) as client:
        await posted(client, "/v1/chat/completions", chat([SYSTEM]))
        other_role = await posted(client, "/v1/chat/completions", chat([SYSTEM, TURNS[1]]))
    assert (other_role["timings"]["cache"]["miss"], other_role["timings"]["cache"]["message"]) == ("differs", None)


@pytest.mark.parametrize("include_usage", [True, False])
async def test_a_stream_brings_the_report_with_its_last_figures(include_usage: bool) -> None:
    options = {"include_usage": include_usage}
    async with http_client(caching_model()) as client:
        answer = await client.post("/v1/chat/completions", json=chat(TURNS, stream=True, stream_options=options))
    assert answer.text.count('"cache":{"cached_tokens":0,"matched_tokens":0,"miss":"cold","message":null}') == 1


async def test_no_report_is_made_where_none_is_asked_for() -> None:
    model = caching_model()
    async with http_client(model) as client:
        answer = await posted(client, "/v1/chat/completions", chat(TURNS, cache_report=False))
    assert "cache" not in answer["timings"] and not model.service.requests[0].explains_cache


async def test_several_answers_and_prompts_report_the_first_prompt() -> None:
    model = caching_model()
    async with http_client(model) as client:
        await posted(client, "/v1/completions", {"model": "scripted", "prompt": "abcdef"})
        body = {"model": "scripted", "prompt": ["abcxyz", "q"], "n": 2, "cache_report": True}
        answer = await posted(client, "/v1/completions", body)
    assert [request.explains_cache for request in model.service.requests] == [False, True, False, False, False]
    assert answer["timings"]["cache"] == {"cached_tokens": 3, "matched_tokens": 3, "miss": "differs", "message": None}
    # The second answer to each prompt finds all of it, which is not what the prompt has saved.
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}


async def test_every_api_tells_of_the_tokens_that_the_cache_had() -> None:
    async with http_client(caching_model()) as client:
        turn = {"role": "user", "content": "Hi there"}
        message = {"model": "scripted", "messages": [turn], "max_tokens": 9}
        for _ in range(2):
            message_usage = (await posted(client, "/v1/messages", message))["usage"]
            response = await posted(client, "/v1/responses", {"model": "scripted", "input": "Hi there"})
    prompt = len("user: Hi there\nassistant: ")
    assert message_usage["cache_read_input_tokens"] == prompt - 1 and message_usage["input_tokens"] == 1
    assert response["usage"]["input_tokens"] == prompt
    assert response["usage"]["input_tokens_details"]["cached_tokens"] == prompt - 1


async def test_salts_part_the_cache_and_a_prompt_that_is_not_to_be_cached_shares_nothing() -> None:
    model = caching_model()
    async with http_client(model) as client:
        assert await cached(client, chat(TURNS)) == 0
        assert await cached(client, chat(TURNS, cache_salt="mine")) == 0
        assert await cached(client, chat(TURNS, cache_prompt=False)) == 0
        assert await cached(client, chat(TURNS, cache_prompt=False)) == 0
        assert await cached(client, chat(TURNS, cache_salt="mine")) > 0
        assert await cached(client, chat(TURNS)) > 0
    salts = [request.cache_salt for request in model.service.requests]
    assert (salts[0], salts[1]) == ("", "mine")
    assert len({*salts}) == 4 and all(salt.startswith("@") for salt in salts[2:4])


async def test_keys_part_the_cache() -> None:
    model = caching_model()
    ours, theirs = {"X-Api-Key": "a"}, {"X-Api-Key": "b"}
    async with http_client(model, ServingOptions(api_keys=("a", "b"))) as client:
        assert await cached(client, chat(TURNS), headers=ours) == 0
        assert await cached(client, chat(TURNS), headers=theirs) == 0
        assert await cached(client, chat(TURNS), headers=ours) > 0
    callers = [request.caller for request in model.service.requests]
    assert callers[0] == callers[2] != callers[1] and {len(caller) for caller in callers} == {32}
