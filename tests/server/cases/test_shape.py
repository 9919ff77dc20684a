"""Cases of the areas "shape" and "tools": the form of answers, of streams and of the calls in them."""

import json
from collections import Counter
from typing import Any

import pytest

from engine.api.request import Request
from tests.server.harness import CHAT, http_client, openai_client
from tests.server.scripted.engine import Mark, ScriptedModel, ScriptedService, Step, scripted_model
from tests.server.scripted.joined import events, joined, whole_choice

USAGE = {"stream": True, "stream_options": {"include_usage": True}}
TOOL = {"type": "function", "function": {"name": "w", "parameters": {"type": "object"}}}
NASTY = "a\"b\\c\nd\te/é😀</tool_call>'"


def call(arguments: object) -> list[Step]:
    text = json.dumps({"name": "w", "arguments": arguments}, ensure_ascii=False)
    pieces = [text[place : place + 3] for place in range(0, len(text), 3)]
    return [Mark("<tool_call>"), "\n", *pieces, "\n", Mark("</tool_call>")]


async def both(model: ScriptedModel, **fields: Any) -> tuple[dict[str, Any], str]:
    async with http_client(model) as client:
        whole = await client.post("/v1/chat/completions", json={**CHAT, **fields})
        stream = await client.post("/v1/chat/completions", json={**CHAT, **fields, **USAGE})
    assert whole.status_code == stream.status_code == 200, whole.text
    return whole.json(), stream.text


async def test_bb_030_chat_logprobs_have_the_chat_shape() -> None:
    """BB-030: an entry a token with its alternatives; null where not asked for; top_logprobs need logprobs."""
    model = scripted_model("Hé", "llo", "!")
    async with openai_client(model) as client:
        answer = await client.chat.completions.create(
            model="scripted", messages=[{"role": "user", "content": "x"}], logprobs=True, top_logprobs=3
        )
        bare = await client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": "x"}])
    assert answer.choices[0].logprobs is not None and answer.usage is not None
    content = answer.choices[0].logprobs.content or []
    assert [(entry.token, entry.bytes) for entry in content] == [
        (text, list(text.encode())) for text in ("Hé", "llo", "!")
    ]
    assert len(content) == answer.usage.completion_tokens and all(entry.logprob <= 0 for entry in content)
    assert all(len(entry.top_logprobs) == 3 and entry.top_logprobs[0].token == entry.token for entry in content)
    assert bare.choices[0].logprobs is None
    async with http_client(model) as plain:
        refused = await plain.post("/v1/chat/completions", json={**CHAT, "top_logprobs": 3})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "top_logprobs")


async def test_bb_032_each_choice_of_a_stream_has_its_role_text_and_finish() -> None:
    """BB-032: per index one role first and one finish, texts equal to the whole answer, one usage for all."""

    def script(request: Request) -> list[Step]:
        return [piece for step in range(6) for piece in (f"{request.choice}-{step} ", 0.0)]

    whole, stream = await both(ScriptedModel(ScriptedService(script)), n=3, seed=1, max_tokens=6)
    result = joined(stream)  # is strict about roles and finishes
    assert sorted(result.choices) == [0, 1, 2]
    assert [result.choices[index].content for index in range(3)] == [
        choice["message"]["content"] for choice in whole["choices"]
    ]
    assert result.usage is not None and result.usage["completion_tokens"] == 18
    assert result.usage["prompt_tokens"] == len("user: Hi\nassistant: ")
    order = [chunk["choices"][0]["index"] for chunk in events(stream)[:-1]]
    assert order != sorted(order), "the choices come side by side"


async def test_bb_033_usage_comes_once_and_equals_that_of_the_whole_answer() -> None:
    """BB-033: null on all chunks but the last, which has no choices; absent where not asked for."""
    model = scripted_model("a", "b")
    whole, stream = await both(model)
    chunks = events(stream)
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert (chunks[-1]["choices"], chunks[-1]["usage"]) == ([], whole["usage"])
    async with http_client(model) as client:
        bare = (await client.post("/v1/chat/completions", json={**CHAT, "stream": True})).text
        alone = await client.post("/v1/chat/completions", json={**CHAT, "stream_options": {"include_usage": True}})
    assert all("usage" not in chunk and chunk["choices"] for chunk in events(bare))
    assert (alone.status_code, alone.json()["error"]["param"]) == (400, "stream_options")


@pytest.mark.parametrize("before", [[], ["Let me see. "]])
async def test_bb_036_a_call_ends_with_one_finish(before: list[Step]) -> None:
    """BB-036: tool_calls and no stop after it, with and without text before."""
    _, stream = await both(scripted_model(*before, *call({"a": 1})), tools=[TOOL])
    reasons = Counter(chunk["choices"][0]["finish_reason"] for chunk in events(stream)[:-1])
    assert {reason: count for reason, count in reasons.items() if reason} == {"tool_calls": 1}


async def test_bb_036_a_call_that_is_cut_off_says_length() -> None:
    """BB-036: what there is of the call is sent, and no closing brace is invented."""
    whole, stream = await both(scripted_model(*call({"a": "long " * 20})), tools=[TOOL], max_tokens=20)
    choice = whole_choice(whole["choices"][0])
    assert choice.finish == joined(stream).choices[0].finish == {"finish_reason": "length"}
    assert choice.calls[0]["arguments"].startswith('{"a": "long') and not choice.calls[0]["arguments"].endswith("}")


async def test_bb_037_two_calls_stream_under_two_indexes() -> None:
    """BB-037: id, type and name once, then arguments only; a second call has another index and id."""
    model = scripted_model(*call({"a": 1}), "\n", *call({"b": [2, {}]}))
    whole, stream = await both(model, tools=[TOOL], tool_choice="required")
    calls = joined(stream).choices[0].calls  # is strict about the pieces
    assert [json.loads(each["arguments"]) for each in calls] == [{"a": 1}, {"b": [2, {}]}]
    assert [(each["name"], each["arguments"]) for each in calls] == [
        (each["function"]["name"], each["function"]["arguments"])
        for each in whole["choices"][0]["message"]["tool_calls"]
    ]
    assert whole["choices"][0]["message"]["content"] is None
    assert all(len(each["id"]) == len("call_") + 24 for each in calls)


async def test_bb_037_the_ids_of_a_thousand_calls_differ() -> None:
    """BB-037: unique over the process."""
    model = scripted_model(*[step for _ in range(100) for step in (*call({}), "\n")])
    ids: list[str] = []
    async with http_client(model) as client:
        for _ in range(10):
            answer = await client.post("/v1/chat/completions", json={**CHAT, "tools": [TOOL]})
            ids += [each["id"] for each in answer.json()["choices"][0]["message"]["tool_calls"]]
    assert len(set(ids)) == len(ids) == 1000


async def test_bb_039_arguments_are_escaped_once() -> None:
    """BB-039: quotes, line breaks and a closing tag within a string arrive as they were meant, in both modes."""
    choice = {"type": "function", "function": {"name": "w"}}
    whole, stream = await both(scripted_model(*call({"s": NASTY})), tools=[TOOL], tool_choice=choice)
    for result in (whole_choice(whole["choices"][0]), joined(stream).choices[0]):
        assert json.loads(result.calls[0]["arguments"]) == {"s": NASTY}
        assert result.content == ""
