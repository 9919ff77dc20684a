"""A streamed answer, put together again, is the whole answer: content, thinking, calls, finish, usage and logprobs."""

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from engine.api.request import Request
from tests.server.harness import CHAT, http_client
from tests.server.scripted.engine import Mark, ScriptedModel, ScriptedService, Step
from tests.server.scripted.joined import JoinedChoice, joined, whole_choice

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {"x": {}}}}}
    for name in ("alpha", "beta_2")
]
WORDS = ["the ", "Straße", " 世界", "😀", "\n", ' a"b\\c', "</tool", "<think", "}", "END", " ", "x" * 30, "\n\n", "é"]


def cut(text: str, chance: random.Random) -> list[str]:
    """The text in pieces of random sizes."""
    pieces = []
    while text:
        size = chance.randint(1, 7)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def words(chance: random.Random, most: int) -> list[Step]:
    return [chance.choice(WORDS) for _ in range(chance.randint(0, most))]


def call(chance: random.Random) -> list[Step]:
    arguments = {"x": chance.choice([1, 'a"b\n</tool_call>é😀', None, {"deep": [1, {}]}]), "y": chance.random()}
    text = json.dumps({"name": chance.choice(["alpha", "beta_2"]), "arguments": arguments}, ensure_ascii=False)
    return [Mark("<tool_call>"), "\n", *cut(text, chance), "\n", Mark("</tool_call>")]


def script(case: int, request: Request) -> list[Step]:
    """The same for the same case and choice, however it is asked for."""
    chance = random.Random(case * 100 + request.choice)
    steps: list[Step] = []
    if chance.random() < 0.5:
        steps += [Mark("<think>"), *words(chance, 8), Mark("</think>"), *chance.choice([[], ["\n\n"]])]
    steps += words(chance, 12)
    if chance.random() < 0.6:
        steps += [step for _ in range(chance.randint(1, 3)) for step in (*call(chance), "\n")]
    return [pause for step in steps for pause in ((step, 0.0) if chance.random() < 0.7 else (step,))]


def fields(case: int) -> dict[str, Any]:
    chance = random.Random(case)
    options: dict[str, Any] = {"n": chance.choice([1, 1, 2, 4])}
    if chance.random() < 0.7:
        options["tools"] = TOOLS
    if chance.random() < 0.4:
        options |= {"logprobs": True, "top_logprobs": chance.randint(0, 3)}
    if chance.random() < 0.4:
        options["stop"] = chance.sample(["END", "世", "x" * 25, "e S", "\n\n", "nowhere"], chance.randint(1, 3))
    if chance.random() < 0.3:
        options["max_tokens"] = chance.randint(1, 30)
    if chance.random() < 0.2:
        options["return_token_ids"] = True
    if chance.random() < 0.2:
        options["include_reasoning"] = False
    if chance.random() < 0.1:
        options["include_stop_str_in_output"] = True
    return options


@pytest.mark.parametrize("block", range(10))
async def test_fifty_random_requests(block: int) -> None:
    model = ScriptedModel(ScriptedService())
    async with http_client(model) as client:
        for case in range(block * 50, block * 50 + 50):
            model.service.script = lambda request, case=case: script(case, request)
            body = {**CHAT, **fields(case)}
            whole = (await client.post("/v1/chat/completions", json=body)).json()
            streaming = {"stream": True, "stream_options": {"include_usage": True}}
            stream = joined((await client.post("/v1/chat/completions", json={**body, **streaming})).text)
            assert [without_ids(stream.choices[index]) for index in range(len(whole["choices"]))] == [
                without_ids(whole_choice(choice)) for choice in whole["choices"]
            ], case
            assert (stream.usage, stream.timings) == (whole["usage"], whole["timings"])


def without_ids(choice: JoinedChoice) -> JoinedChoice:
    assert len({each["id"] for each in choice.calls}) == len(choice.calls)
    calls = [{key: each[key] for key in ("name", "arguments")} for each in choice.calls]
    return replace(choice, calls=calls, chunks=0)
