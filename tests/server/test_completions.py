"""POST /v1/completions."""

from typing import Any

import pytest
from openai.types import Completion

from tests.server.harness import http_client, openai_client
from tests.server.scripted_engine import ScriptedModel, scripted_model


async def test_a_whole_answer_is_a_text_completion() -> None:
    async with openai_client(scripted_model("Hello", " world")) as client:
        answer = await client.completions.create(model="scripted", prompt="Say:")
    Completion.model_validate(answer.model_dump(), strict=True)
    assert (answer.id[:5], answer.object) == ("cmpl-", "text_completion")
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("Hello world", "stop")
    assert answer.usage is not None and answer.usage.prompt_tokens == 4


async def test_a_stream_is_text_completions_too() -> None:
    async with openai_client(scripted_model("Hello", " world")) as client:
        stream = await client.completions.create(
            model="scripted", prompt="Say:", stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert [chunk.choices[0].text for chunk in chunks if chunk.choices] == ["Hello", " world", ""]
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 2


@pytest.mark.parametrize("prompt", ["abc", ["abc"], [97, 98, 99], [[97, 98, 99]]])
async def test_one_prompt_is_taken_in_every_spelling(prompt: Any) -> None:
    model = scripted_model("x")
    async with http_client(model) as client:
        answer = await client.post("/v1/completions", json={"model": "scripted", "prompt": prompt})
    assert answer.status_code == 200
    assert bytes(model.service.requests[0].prompt) == b"abc"


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        (None, "prompt"),
        ("", "prompt"),
        ([""], "prompt"),
        ([], "prompt"),
        ([[]], "prompt"),
        (["a", "b"], "prompt"),
        ([[1], [2]], "prompt"),
        (5, "prompt"),
        ([-1], "prompt[0]"),
        ([1, "a"], "prompt[1]"),
        ([1, 99999999], "prompt[1]"),
        ([1, 2**31], "prompt[1]"),
    ],
)
async def test_other_prompts_are_refused_by_name(prompt: Any, param: str) -> None:
    model = scripted_model("x")
    async with http_client(model) as client:
        answer = await client.post("/v1/completions", json={"model": "scripted", "prompt": prompt})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert model.service.requests == []


async def test_the_default_length_is_that_of_the_reference() -> None:
    model = scripted_model("x")
    async with http_client(model) as client:
        await client.post("/v1/completions", json={"model": "scripted", "prompt": "a"})
    assert model.service.requests[0].max_tokens == 16


async def test_completions_need_no_template() -> None:
    async with http_client(ScriptedModel(template=None)) as client:
        assert (await client.post("/v1/completions", json={"model": "scripted", "prompt": "a"})).status_code == 200
