"""Area shape: answers and chunks have the form that clients parse, with real tokens in them."""

import math
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.completion import Completion

from tests.cases.real import CHAT_PATH, HI, TEXT_PATH, Json, RealServer
from tests.server.scripted.joined import events

TOOL: Json = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}},
}
LONG: Json = {"type": "function", "function": {"name": "f", "parameters": {"const": {"s": "x" * 100}}}}
SPEAKS = {"max_tokens": 12, "ignore_eos": True}


@pytest.mark.parametrize("temperature", [0, 1.3])
@pytest.mark.parametrize("top", [None, 0, 1, 3, 20])
def test_chat_logprobs_are_a_list_of_tokens(plain: RealServer, temperature: float, top: int | None) -> None:
    """BB-030: they come in the shape of the older API, or are missing."""
    fields: Json = {**SPEAKS, "temperature": temperature, "seed": 1, "logprobs": True, "top_logprobs": top}
    answer = plain.chat(**fields)
    content = answer["choices"][0]["logprobs"]["content"]
    assert len(content) == answer["usage"]["completion_tokens"] == 12
    for token in content:
        assert token.keys() == {"token", "logprob", "bytes", "top_logprobs"}
        assert token["logprob"] <= 0 and len(token["top_logprobs"]) == (top or 0)
        likely = [each["logprob"] for each in token["top_logprobs"]]
        assert likely == sorted(likely, reverse=True) and sum(map(math.exp, likely)) <= 1 + 1e-3
        if top and temperature == 0:
            assert token["top_logprobs"][0]["token"] == token["token"]
    written = b"".join(bytes(token["bytes"] or []) for token in content).decode(errors="replace")
    assert written == answer["choices"][0]["message"]["content"]
    ChatCompletion.model_validate(answer)
    plain.choices(**fields)


def test_logprobs_are_null_where_nobody_asks_and_there_beside_calls(calls: RealServer) -> None:
    """BB-030: with tools the field is missing, and validation fails."""
    choice = calls.chat(max_tokens=1)["choices"][0]
    assert choice["logprobs"] is None
    fields: Json = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 300}
    answer = calls.chat(**fields, logprobs=True, seed=1)
    assert len(answer["choices"][0]["logprobs"]["content"]) == answer["usage"]["completion_tokens"]
    assert answer["choices"][0]["message"]["tool_calls"]
    (choice_of_both,) = calls.choices(**fields, logprobs=True)
    assert choice_of_both.calls


def test_completions_keep_the_older_shape(plain: RealServer) -> None:
    """BB-030: parallel lists, whose offsets point into the text."""
    answer = plain.complete(**SPEAKS, temperature=0, logprobs=2, allowed_token_ids=list(range(33, 126)))
    logprobs = answer["choices"][0]["logprobs"]
    assert logprobs.keys() == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    assert {len(each) for each in logprobs.values()} == {12}
    text = answer["choices"][0]["text"]
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        assert text[offset - logprobs["text_offset"][0] :].startswith(token)
    Completion.model_validate(answer)
    assert plain.complete(**SPEAKS)["choices"][0]["logprobs"] is None


def test_alternatives_need_logprobs(plain: RealServer) -> None:
    """BB-030."""
    assert plain.refusal(CHAT_PATH, {"messages": HI, "top_logprobs": 3})["param"] == "top_logprobs"


@pytest.mark.parametrize("n", [2, 3, 16])
def test_several_answers_stream_side_by_side(plain: RealServer, n: int) -> None:
    """BB-032: the finish always says index 0, and later choices never get a role."""
    fields: Json = {"n": n, "max_tokens": 6, "seed": 1, "temperature": 1}
    choices = plain.choices(**fields)  # compares each with its whole one, and checks its role and its one finish
    assert len(choices) == n
    assert all(choice.finish for choice in choices)
    usage = plain.chat(**fields, return_token_ids=True)
    counted = [len(choice["token_ids"]) for choice in usage["choices"]]
    assert usage["usage"]["completion_tokens"] == sum(counted)
    assert usage["usage"]["prompt_tokens"] == plain.chat(max_tokens=1)["usage"]["prompt_tokens"]


@pytest.mark.parametrize("kind", ["calls", "thinks"])
def test_several_answers_stream_side_by_side_with_calls_and_thoughts(request: pytest.FixtureRequest, kind: str) -> None:
    """BB-032: each choice has calls, thinking and an end of its own."""
    server: RealServer = request.getfixturevalue(kind)
    fields: Json = {"tools": [TOOL], "tool_choice": "required", "n": 4, "max_tokens": 300, "thinking_token_budget": 5}
    for choice in server.choices(**fields, parallel_tool_calls=False, temperature=1.2):
        assert [call["name"] for call in choice.calls] == ["f"]
        assert choice.finish == {"finish_reason": "tool_calls"}


@pytest.mark.parametrize("path", [CHAT_PATH, TEXT_PATH])
def test_usage_comes_once_and_last_where_asked_for(plain: RealServer, path: str) -> None:
    """BB-033: usage is on every chunk, or never, or in a chunk that clients drop."""
    body: Json = {"messages": HI, "prompt": "Hi", "temperature": 0, "max_tokens": 5, "n": 2}
    whole = plain.answer(path, body)["usage"]
    *chunks, last = streamed(plain, path, {**body, "stream_options": {"include_usage": True}})
    assert (last["choices"], last["usage"]) == ([], whole)
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks)
    assert whole["prompt_tokens_details"]["cached_tokens"] <= whole["prompt_tokens"]
    unasked: list[Json] = [{}, {"stream_options": {}}, {"stream_options": {"include_usage": False}}]
    for fields in [*unasked, {"stream_options": None}]:
        chunks = streamed(plain, path, {**body, **fields})
        assert all(chunk.get("usage") is None and chunk["choices"] for chunk in chunks)
    if path == CHAT_PATH:
        for chunk in chunks:
            ChatCompletionChunk.model_validate(chunk)


def test_stream_options_belong_to_streams(plain: RealServer) -> None:
    """BB-033: without stream they are refused, as they could do nothing."""
    error = plain.refusal(CHAT_PATH, {"messages": HI, "stream_options": {"include_usage": True}})
    assert error["param"] == "stream_options"


def streamed(server: RealServer, path: str, body: Json) -> list[Json]:
    return events(server.post(path, {**body, "stream": True}).content.decode())


CALLING: dict[str, Json] = {
    "required": {"tool_choice": "required"},
    "one": {"tool_choice": "required", "parallel_tool_calls": False},
    "named": {"tool_choice": {"type": "function", "function": {"name": "f"}}},
    "after text": {"tool_choice": "auto", "parallel_tool_calls": False},
    "cut": {"tool_choice": "required", "max_tokens": 40, "tools": [LONG]},
}


@pytest.mark.parametrize("name", CALLING)
@pytest.mark.parametrize("kind", ["calls", "thinks"])
def test_a_stream_of_calls_has_one_finish(request: pytest.FixtureRequest, kind: str, name: str) -> None:
    """BB-036: tool_calls, and then an extra stop, of which clients take the last."""
    server: RealServer = request.getfixturevalue(kind)
    fields: Json = {"messages": HI, "tools": [TOOL], "max_tokens": 300, "seed": 4, "thinking_token_budget": 3}
    fields |= CALLING[name]
    if name == "after text":
        fields["logit_bias"] = {str(server.token("<tool_call>")): 2}
    chunks = streamed(server, CHAT_PATH, fields)
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    reasons = [choice["finish_reason"] for choice in choices]
    assert [reason for reason in reasons if reason] == ["length" if name == "cut" else "tool_calls"]
    assert reasons[-1] is not None
    calling = [place for place, choice in enumerate(choices) if "tool_calls" in choice["delta"]]
    speaking = [place for place, choice in enumerate(choices) if choice["delta"].get("content")]
    assert calling
    assert bool(speaking) == (name == "after text") and speaking < calling


def test_the_sdk_reads_both_shapes(plain: RealServer) -> None:
    """BB-030, BB-032, BB-033: openai-python's own types and its stream."""
    messages: Any = HI
    fields: Any = {"model": "plain", "max_tokens": 5, "extra_body": {"ignore_eos": True}}
    with openai.OpenAI(base_url=f"{plain.live.url}/v1", api_key="unused", max_retries=0) as sdk:
        chat = sdk.chat.completions.create(messages=messages, logprobs=True, top_logprobs=2, **fields)
        text = sdk.completions.create(prompt="Hi", logprobs=2, **fields)
        chunks = list(
            sdk.chat.completions.create(
                messages=messages, n=2, stream=True, stream_options={"include_usage": True}, **fields
            )
        )
    assert chat.choices[0].logprobs is not None and len(chat.choices[0].logprobs.content or []) == 5
    assert text.choices[0].logprobs is not None and len(text.choices[0].logprobs.tokens or []) == 5
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 10
    assert {choice.index for chunk in chunks for choice in chunk.choices} == {0, 1}
