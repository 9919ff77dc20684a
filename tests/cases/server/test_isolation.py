"""Area isolation: whoever else is being served, an answer is the one that its request gets alone."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.cases.real import CHAT_PATH, HI, Json, RealServer
from tests.cases.server.test_lifecycle import REQUESTS, begin
from tests.server.scripted.joined import joined, whole_choice
from tests.server.wire.test_disconnect import kill

COUNT, TOGETHER, ROUNDS = 40, 32, 2
TOOL: Json = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}},
}


def request(number: int) -> Json:
    """Each with a marker of its own, a length from a few tokens to 1,500, and a kind."""
    chance = random.Random(number)
    text = f"<<marker {number:06}>> " + "the " * int(1500 * chance.random() ** 3)
    body: Json = {"messages": [{"role": "user", "content": text}], "max_tokens": 5 + number % 40, "seed": number}
    body["temperature"] = 0 if number % 3 else 1.2
    kinds: list[Json] = [
        {},
        {"stream": True},
        {"tools": [TOOL], "tool_choice": "required", "stream": bool(number % 8 == 2)},
        {"response_format": {"type": "json_object"}, "logprobs": True},
    ]
    return body | kinds[number % 4]


def answered(server: RealServer, body: Json) -> Any:
    answer = server.post(CHAT_PATH, body)
    assert answer.status_code == 200, answer.text
    choice = joined(answer.text).choices[0] if body.get("stream") else whole_choice(answer.json()["choices"][0])
    calls = [(call["name"], call["arguments"]) for call in choice.calls]
    return choice.content, choice.reasoning, calls, choice.logprobs, choice.finish


def test_answers_are_those_that_each_request_gets_alone(calls: RealServer) -> None:
    """BB-053: a mix-up of rows or of memory in a batch gives one client another's text."""
    alone = [answered(calls, request(number)) for number in range(COUNT)]
    chance = random.Random(53)
    for _ in range(ROUNDS):
        order = chance.sample(range(COUNT), COUNT)
        done = threading.Event()
        with ThreadPoolExecutor(TOGETHER + 1) as pool:
            leaver = pool.submit(come_and_go, calls, done)
            together = dict(zip(order, pool.map(lambda number: answered(calls, request(number)), order), strict=True))
            done.set()
            leaver.result()
        assert [number for number in range(COUNT) if together[number] != alone[number]] == []


def come_and_go(server: RealServer, done: threading.Event) -> None:
    """Others, who leave before their answers end."""
    chance = random.Random(1)
    while not done.is_set():
        with begin(server, REQUESTS[chance.choice([*REQUESTS])]) as connection:
            time.sleep(chance.random() * 0.02)
            kill(connection, chance)


def test_a_fault_of_one_request_is_not_seen_by_others(plain: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """BB-053: one whose step breaks the runner ends; the rest of its batch goes on as if alone."""
    bodies: list[Json] = [{"messages": HI, "seed": seed, "max_tokens": 40, "ignore_eos": True} for seed in range(8)]
    alone = [answered(plain, body) for body in bodies]
    runner = plain.live.model.service._runner
    run, poison = runner.run, plain.token("#")

    def break_on_poison(batch: Any, meanwhile: Any) -> Any:
        if any(poison in rows.tokens for rows in batch):
            raise ZeroDivisionError("poison")
        return run(batch, meanwhile)

    monkeypatch.setattr(runner, "run", break_on_poison)
    with ThreadPoolExecutor(9) as pool:
        banned = {"logit_bias": {str(poison): -100}}
        alone = [answered(plain, body | banned) for body in bodies]
        answers = pool.map(lambda body: answered(plain, body | banned), bodies)
        broken = [plain.post(CHAT_PATH, {"messages": [{"role": "user", "content": "#"}]}) for _ in range(3)]
        assert list(answers) == alone
    assert [(answer.status_code, answer.json()["error"]["type"]) for answer in broken] == [(500, "server_error")] * 3
    assert plain.is_idle()
