"""POST /v1/completions."""

from typing import Any

import pytest
from openai.types import Completion

from engine.api.request import Request
from tests.server.harness import http_client, openai_client
from tests.server.scripted.engine import ScriptedModel, ScriptedService, scripted_model


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
        ([""], "prompt[0]"),
        ([], "prompt"),
        ([[]], "prompt[0]"),
        (["a", ""], "prompt[1]"),
        (["a", 5], "prompt[1]"),
        ([[1], ["x"]], "prompt[1][0]"),
        ([[1], [1, 99999999]], "prompt[1][1]"),
        (5, "prompt"),
        (["a"] * 257, "prompt"),
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


async def complete(model: ScriptedModel, **fields: Any) -> dict[str, Any]:
    async with http_client(model) as client:
        answer = await client.post("/v1/completions", json={"model": "scripted", **fields})
    body: dict[str, Any] = answer.json()
    assert answer.status_code == 200, body
    return body


def echoing() -> ScriptedModel:
    """Answers with its prompt and the number of its choice."""

    def script(request: Request) -> list[str]:
        return [bytes(request.prompt).decode().upper(), str(request.choice)]

    return ScriptedModel(ScriptedService(script))


@pytest.mark.parametrize("prompt", [["ab", "cd"], [[97, 98], [99, 100]]])
async def test_several_prompts_have_their_choices_in_order(prompt: Any) -> None:
    body = await complete(echoing(), prompt=prompt, n=2)
    assert [(choice["index"], choice["text"]) for choice in body["choices"]] == [
        (0, "AB0"),
        (1, "AB1"),
        (2, "CD0"),
        (3, "CD1"),
    ]
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (4, 8)


async def test_several_prompts_stream_side_by_side() -> None:
    async with openai_client(echoing()) as client:
        stream = await client.completions.create(model="scripted", prompt=["ab", "cd"], stream=True)
        texts = {0: "", 1: ""}
        async for chunk in stream:
            texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == {0: "AB0", 1: "CD0"}


async def test_logprobs_have_the_legacy_shape() -> None:
    async with openai_client(scripted_model("Hé", "llo")) as client:
        answer = await client.completions.create(model="scripted", prompt="Say:", logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.top_logprobs is not None
    assert (logprobs.tokens, logprobs.text_offset) == (["Hé", "llo"], [0, 2])
    assert logprobs.token_logprobs is not None and all(value < 0 for value in logprobs.token_logprobs)
    assert [len(top) for top in logprobs.top_logprobs] == [2, 2]
    assert [next(iter(top)) for top in logprobs.top_logprobs] == ["Hé", "llo"]


async def test_zero_logprobs_are_those_of_the_chosen_tokens() -> None:
    body = await complete(scripted_model("ab"), prompt="x", logprobs=0)
    logprobs = body["choices"][0]["logprobs"]
    assert logprobs["top_logprobs"] == [{"ab": logprobs["token_logprobs"][0]}]


async def test_echo_puts_the_prompt_before_the_text_and_its_logprobs() -> None:
    body = await complete(scripted_model("!", "?"), prompt="ab", echo=True, logprobs=1)
    choice = body["choices"][0]
    assert choice["text"] == "ab!?"
    assert choice["logprobs"]["tokens"] == ["a", "b", "!", "?"]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2, 3]
    assert choice["logprobs"]["token_logprobs"][0] is None and choice["logprobs"]["top_logprobs"][0] is None
    assert all(value < 0 for value in choice["logprobs"]["token_logprobs"][1:])


@pytest.mark.parametrize("logprobs", [None, 1])
async def test_no_tokens_at_all_score_the_prompt(logprobs: int | None) -> None:
    model = scripted_model("never")
    body = await complete(model, prompt="ab", echo=True, max_tokens=0, logprobs=logprobs)
    choice = body["choices"][0]
    assert (choice["text"], choice["finish_reason"], body["usage"]["completion_tokens"]) == ("ab", "length", 0)
    assert (choice["logprobs"] is None) == (logprobs is None)
    assert model.service.requests[0].prompt_logprobs == (logprobs or 0)


async def test_a_streamed_echo_comes_first() -> None:
    async with openai_client(scripted_model("x")) as client:
        stream = await client.completions.create(model="scripted", prompt=[97, 98], echo=True, stream=True)
        assert "".join([chunk.choices[0].text async for chunk in stream]) == "abx"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"echo": True, "logprobs": 1, "stream": True}, "logprobs"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"best_of": 2}, "best_of"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
    ],
)
async def test_what_cannot_be_done_is_refused(fields: dict[str, Any], param: str) -> None:
    async with http_client(scripted_model("x")) as client:
        answer = await client.post("/v1/completions", json={"model": "scripted", "prompt": "a", **fields})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_a_suffix_is_written_before_what_comes_between() -> None:
    model = scripted_model("x")
    await complete(model, prompt="ab", suffix="yz")
    prefix, suffix, middle = (model.tokenizer.mark_id(f"<|fim_{name}|>") for name in ("prefix", "suffix", "middle"))
    assert model.service.requests[0].prompt.tokens == (prefix, *b"ab", suffix, *b"yz", middle)


async def test_a_suffix_needs_a_model_that_can_infill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.server.scripted.engine.ScriptedTokenizer.infill_ids", None)
    async with http_client(scripted_model("x")) as client:
        answer = await client.post("/v1/completions", json={"model": "scripted", "prompt": "a", "suffix": "b"})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, "suffix", "unsupported_parameter")


async def test_token_ids_are_returned_where_asked_for() -> None:
    model = scripted_model("ab", "c")
    choice = (await complete(model, prompt="xy", return_token_ids=True))["choices"][0]
    assert choice["prompt_token_ids"] == list(b"xy")
    assert choice["token_ids"] == [model.tokenizer.piece_id("ab"), ord("c")]
