"""No parameter is silently ignored."""

from typing import Any

import pytest
from openai.types import completion_create_params as text_params
from openai.types.chat import completion_create_params as chat_params

from server.fields.chat import ChatBody
from server.fields.completions import CompletionBody
from server.fields.parameters import CHAT_PARAMETERS, COMPLETION_PARAMETERS, Handling, ignored_header
from server.settings import ServingOptions
from tests.server.harness import CHAT, http_client
from tests.server.scripted.engine import scripted_model

APIS = [(CHAT_PARAMETERS, ChatBody), (COMPLETION_PARAMETERS, CompletionBody)]


@pytest.mark.parametrize(("table", "body"), APIS)
def test_what_is_honoured_is_what_the_protocol_type_has(table: Any, body: Any) -> None:
    rows = {row.name for row in table.values() if row.handling is Handling.HONOURED and "." not in row.name}
    assert rows == set(body.model_fields)


@pytest.mark.parametrize(
    ("table", "params"),
    [
        (CHAT_PARAMETERS, chat_params.CompletionCreateParamsNonStreaming),
        (COMPLETION_PARAMETERS, text_params.CompletionCreateParamsNonStreaming),
    ],
)
def test_every_parameter_of_the_sdk_has_a_row(table: Any, params: Any) -> None:
    assert set(params.__annotations__) | set(params.__mro__[0].__annotations__) <= set(table)


@pytest.mark.parametrize(
    "change",
    [
        {"best_of": 3},
        {"use_beam_search": True},
        {"repeat_last_n": 64, "repeat_penalty": 1.2},
        {"modalities": ["text", "audio"]},
        {"audio": {"voice": "x"}},
        {"web_search_options": {}},
        {"reasoning": {"effort": "low"}},
        {"reasoning_format": "none"},
        {"prompt_logprobs": 1},
        {"chat_template": "{{ messages }}"},
        {"documents": [{"text": "x"}]},
        {"return_progress": True},
        {"echo": True},
        {"xtc_probability": 0.1, "xtc_threshold": 0.1},
        {"structured_outputs.structural_tag": "x"},
    ],
)
async def test_what_would_change_the_answer_is_refused(change: dict[str, Any]) -> None:
    model = scripted_model("x")
    name = next(iter(change))
    outer, _, inner = name.partition(".")
    sent = {outer: {inner: change[name]}} if inner else change
    async with http_client(model) as client:
        answer = await client.post("/v1/chat/completions", json={**CHAT, **sent})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "unsupported_parameter", name)
    assert model.service.requests == []


async def test_neutral_values_are_accepted_and_not_worth_a_note() -> None:
    neutral = {
        "n": 1,
        "best_of": 1,
        "store": False,
        "cache_prompt": True,
        "cache_report": False,
        "priority": 0,
        "repeat_last_n": -1,
        "reasoning_format": "auto",
        "logprobs": False,
        "top_logprobs": 0,
        "frequency_penalty": 0,
        "presence_penalty": 0.0,
        "repetition_penalty": 1,
        "logit_bias": {},
        "tools": [],
        "tool_choice": "auto",
        "functions": [],
        "response_format": {"type": "text"},
        "modalities": ["text"],
        "echo": False,
        "add_generation_prompt": True,
        "skip_special_tokens": True,
    }
    async with http_client(scripted_model("x")) as client:
        answer = await client.post("/v1/chat/completions", json={**CHAT, **neutral})
    assert answer.status_code == 200 and "x-ignored-params" not in answer.headers


async def test_false_is_not_zero() -> None:
    async with http_client(scripted_model("x")) as client:
        answer = await client.post("/v1/chat/completions", json={**CHAT, "xtc_probability": False})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "xtc_probability"


@pytest.mark.parametrize("stream", [False, True])
async def test_what_has_no_effect_is_listed(stream: bool) -> None:
    extras = {"user": "u1", "store": True, "prompt_cache_key": "k", "x_vendor": {"deep": [1]}, "verbosity": "low"}
    async with http_client(scripted_model("x")) as client:
        answer = await client.post("/v1/chat/completions", json={**CHAT, **extras, "stream": stream})
    assert answer.status_code == 200
    assert set(answer.headers["x-ignored-params"].split(",")) == set(extras)


async def test_keys_that_nobody_reads_are_listed_inside_tools_and_formats_too() -> None:
    tool = {"type": "function", "eager": True, "function": {"name": "f", "hint": 1, "strict": None}}
    output = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}, "note": "x"}}
    async with http_client(scripted_model("x")) as client:
        tools = await client.post("/v1/chat/completions", json={**CHAT, "tools": [tool]})
        form = await client.post("/v1/chat/completions", json={**CHAT, "response_format": output})
    assert tools.headers["x-ignored-params"] == "tools[].eager,tools[].function.hint"
    assert form.headers["x-ignored-params"] == "response_format.json_schema.note"


async def test_strict_params_refuses_what_would_be_ignored() -> None:
    async with http_client(scripted_model("x"), ServingOptions(strict_params=True)) as client:
        bad = await client.post("/v1/chat/completions", json={**CHAT, "user": "u1"})
        unread = await client.post("/v1/chat/completions", json={**CHAT, "chat_template_kwargs": {"mood": "good"}})
        good = await client.post("/v1/chat/completions", json=CHAT)
    assert (bad.status_code, bad.json()["error"]["param"], good.status_code) == (400, "user", 200)
    assert (unread.status_code, unread.json()["error"]["param"]) == (400, "chat_template_kwargs.mood")


async def test_a_literal_extra_body_is_unwrapped_and_noted() -> None:
    model = scripted_model("x")
    async with http_client(model) as client:
        answer = await client.post("/v1/chat/completions", json={**CHAT, "extra_body": {"top_k": 7}})
        refused = await client.post("/v1/chat/completions", json={**CHAT, "extra_body": {"best_of": 7}})
    assert answer.headers["x-ignored-params"] == "extra_body"
    assert model.service.requests[0].sampling.top_k == 7
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "best_of")


async def test_unknown_fields_change_nothing() -> None:
    model = scripted_model("x")
    message = {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {}}], "id": 7}
    async with http_client(model) as client:
        await client.post("/v1/chat/completions", json=CHAT)
        answer = await client.post("/v1/chat/completions", json={**CHAT, "messages": [message], "x_vendor": [1]})
    assert answer.headers["x-ignored-params"] == "x_vendor,messages[].id,messages[].content[].cache_control"
    plain, decorated = model.service.requests
    assert plain.prompt == decorated.prompt and plain.sampling == decorated.sampling


def test_the_header_is_bounded_and_safe() -> None:
    header = ignored_header(["a\r\nset-cookie: x", "é" * 500, *(f"p{index}" for index in range(100))])
    value = header["x-ignored-params"]
    assert value.isascii() and "\n" not in value and len(value) < 32 * 65
