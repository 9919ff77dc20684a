"""Area params: every field does what it says, null is absent, and what cannot be done is refused by name."""

import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from server.fields.chat import ChatBody
from server.fields.completions import CompletionBody
from tests.cases.real import CHAT_PATH, HI, TEXT_PATH, Json, RealServer

REQUIRED = {"model", "messages", "prompt"}


def test_null_is_absent_for_every_optional_field(thinks: RealServer) -> None:
    """BB-022: null is a type error; one field at a time, and all at once."""
    base: Json = {"messages": HI, "temperature": 0, "max_tokens": 6}
    expected = thinks.chat(**base)["choices"]
    optional = [name for name in ChatBody.model_fields if name not in REQUIRED | base.keys()]
    assert len(optional) > 50
    for name in [*optional, "best_of", "functions", "audio", "an_unknown_one"]:
        assert thinks.chat(**base, **{name: None})["choices"] == expected, name
    assert thinks.chat(**base, **dict.fromkeys(optional))["choices"] == expected


def test_null_is_absent_in_completions_too(plain: RealServer) -> None:
    """BB-022."""
    base: Json = {"prompt": "Hi", "temperature": 0, "max_tokens": 6}
    optional = [name for name in CompletionBody.model_fields if name not in REQUIRED | base.keys()]
    expected = plain.complete(**base)["choices"]
    for name in optional:
        assert plain.complete(**base, **{name: None})["choices"] == expected, name


@pytest.mark.parametrize("path", [CHAT_PATH, TEXT_PATH])
def test_without_a_limit_the_context_is_one(plain: RealServer, path: str) -> None:
    """BB-022: an answer without max_tokens ends, by the end of a turn or with the context."""
    ends = {str(token): -100 for token in plain.model.tokenizer.end_ids}
    for fields in ({}, {"max_tokens": None}, {"logit_bias": ends}, {"ignore_eos": True, "max_tokens": 10**6}):
        body = {"messages": HI} if path == CHAT_PATH else {"prompt": "Hi"}
        answer = plain.answer(path, {**body, "temperature": 0, **fields})
        usage = answer["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] <= 512
        if usage["total_tokens"] == 512:
            assert answer["choices"][0]["finish_reason"] == "length"
    assert usage["total_tokens"] == 512


@pytest.mark.parametrize("name", ["max_completion_tokens", "max_tokens"])
def test_the_limit_counts_every_token_of_the_answer(opens: RealServer, name: str) -> None:
    """BB-024: the newer name is not known, and the answer runs to the end of the context. Thinking counts too."""
    for kwargs in ({}, {"chat_template_kwargs": {"enable_thinking": True}}):
        answer = opens.chat(**{name: 3}, ignore_eos=True, **kwargs)
        assert (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) == (3, "length")
    both = opens.chat(max_tokens=9, max_completion_tokens=2, ignore_eos=True)
    assert both["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("path", [CHAT_PATH, TEXT_PATH])
@pytest.mark.parametrize(
    "bias",
    [
        {"99999999": 5},
        {"320": 1},
        {"-1": 5},
        {"a": 5},
        {"1.5": 5},
        {"": 5},
        {"1": 101},
        {"1": -100.5},
        {"1": "x"},
        {"1": [1]},
        {"9" * 400: 1},
        {"٣": 1},
        [],
        "x",
    ],
)
def test_a_bias_that_cannot_be_is_refused(plain: RealServer, path: str, bias: Any) -> None:
    """BB-026: an id outside the vocabulary indexes past the logits and ends the engine."""
    error = plain.refusal(path, {"messages": HI, "prompt": "Hi", "max_tokens": 4, "logit_bias": bias})
    assert error["param"].startswith("logit_bias")
    assert plain.chat(temperature=0, max_tokens=4, logit_bias={})["usage"]["completion_tokens"] == 4


def test_a_bias_of_nan_is_no_json(plain: RealServer) -> None:
    """BB-026."""
    raw = '{"model": "plain", "prompt": "x", "logit_bias": {"1": NaN}}'
    answer = plain.http.post(TEXT_PATH, content=raw, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


def test_bans_and_orders_are_obeyed(plain: RealServer) -> None:
    """BB-026: -100 bans a token and 100 leaves no other, greedy or not; also where all ids are in the map."""
    fields: Json = {"max_tokens": 8, "ignore_eos": True, "return_token_ids": True}

    def ids(**more: Any) -> list[int]:
        return list(plain.complete(**fields, **more)["choices"][0]["token_ids"])

    banned: dict[str, int] = {}
    for _ in range(5):
        first = ids(temperature=0, logit_bias=banned)[0]
        assert str(first) not in banned
        banned[str(first)] = -100
    assert ids(temperature=1.5, logit_bias={"70": 100}) == [70] * 8
    everything = {str(token): -100 for token in range(320)} | {"71": 0}
    assert ids(temperature=1.0, logit_bias=everything) == [71] * 8


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {"logit_bias": {str(token): -100 for token in range(320)}},
        {"allowed_token_ids": [70], "logit_bias": {"70": -100}},
        {"allowed_token_ids": [70], "regex": "zzz"},
    ],
    ids=["all", "one", "grammar"],
)
def test_bans_that_leave_no_token_are_the_requests_fault(plain: RealServer, fields: Json, stream: bool) -> None:
    """BB-026: an answer cannot begin; that is no 500, which a client would try again."""
    answer = plain.post(TEXT_PATH, {"prompt": "Hi", "stream": stream, **fields})
    if stream:
        error, done = (line.removeprefix("data: ") for line in answer.text.strip().split("\n\n")[-2:])
        assert done == "[DONE]"
        assert json.loads(error)["error"]["type"] == "invalid_request_error"
    else:
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert plain.complete(max_tokens=1)["usage"]["completion_tokens"] == 1


def test_a_map_of_more_ids_than_the_model_has_is_refused_and_others_go_on(plain: RealServer) -> None:
    """BB-026: 150,000 entries are read in no time, and are no fault of the engine."""
    error = plain.refusal(TEXT_PATH, {"prompt": "x", "logit_bias": {str(token): 1 for token in range(150_000)}})
    assert error["param"] == "logit_bias"
    assert plain.complete(max_tokens=1)["usage"]["completion_tokens"] == 1


def contents(answer: Json) -> list[str]:
    return [choice["message"]["content"] for choice in answer["choices"]]


def test_without_a_seed_every_answer_is_another(plain: RealServer) -> None:
    """BB-028: a fixed default seed, or copies where several answers are asked for."""
    fields: Json = {"temperature": 1.5, "max_tokens": 24, "ignore_eos": True}
    assert len(set(contents(plain.chat(n=4, **fields)))) == 4
    assert len({contents(plain.chat(**fields))[0] for _ in range(10)}) == 10
    with ThreadPoolExecutor(10) as pool:
        together = pool.map(lambda _: contents(plain.chat(**fields))[0], range(10))
    assert len(set(together)) == 10


def test_with_a_seed_every_choice_comes_again(plain: RealServer) -> None:
    """BB-028: choice i depends on the seed and i alone; any 64 bits are a seed."""
    fields: Json = {"temperature": 1.5, "max_tokens": 24, "ignore_eos": True}
    for seed in (7, 0, -1, 2**63 - 1, -(2**63)):
        four = contents(plain.chat(n=4, seed=seed, **fields))
        assert len(set(four)) == 4
        assert contents(plain.chat(n=4, seed=seed, **fields)) == four
        assert contents(plain.chat(n=2, seed=seed, **fields)) == four[:2]
    prompts = plain.complete(prompt=["Hi", "Ho"], n=2, seed=7, **fields)["choices"]
    assert [choice["index"] for choice in prompts] == [0, 1, 2, 3]
    assert prompts[:2] == plain.complete(prompt="Hi", n=2, seed=7, **fields)["choices"]


TOO_MANY: dict[str, Any] = {
    "n": [10**6, 2**70, 17, 0, -1, 1.5, "2"],
    "best_of": [10**6],
    "stop": [["a"] * 17, ["x" * 5000], "x" * 100_000],
    "stop_token_ids": [[1] * 400_000],
    "bad_words": [["x"] * 100_000],
}
CHAT_ONLY: dict[str, Any] = {
    "logit_bias": [dict.fromkeys(map(str, range(400_000)), 1)],
    "top_logprobs": [21, 10**6, -1],
    "messages": [HI * 20_000],
    "tools": [[{"type": "function", "function": {"name": f"f{place}"}} for place in range(5000)]],
    "metadata": [{str(place): "x" for place in range(17)}, {"k": "x" * 513}],
    "chat_template_kwargs": [{f"k{place}": 1 for place in range(17)}],
}
TEXT_ONLY: dict[str, Any] = {
    "logprobs": [10**6, -1],
    "prompt": [["x"] * 100_000, [[1]] * 100_000],
}
CASES = [
    *((CHAT_PATH, name, value) for name, values in (TOO_MANY | CHAT_ONLY).items() for value in values),
    *((TEXT_PATH, name, value) for name, values in (TOO_MANY | TEXT_ONLY).items() for value in values),
]


@pytest.mark.parametrize(("path", "name", "value"), CASES, ids=lambda value: str(value)[:24])
def test_numbers_and_lists_without_measure_are_refused(plain: RealServer, path: str, name: str, value: Any) -> None:
    """BB-029: a million copies of a request are made before anybody counts them."""
    body = {"messages": HI, "prompt": "x", "max_tokens": 1, "logprobs": True if path == CHAT_PATH else 1, name: value}
    error = plain.refusal(path, body)
    assert re.split(r"[.\[]", error["param"])[0] == name
    assert len(error["message"]) < 1000


def test_what_is_refused_never_reaches_the_engine(plain: RealServer) -> None:
    """BB-029: a running answer goes on with its own text, and nothing is left behind."""
    fields: Json = {"max_tokens": 300, "ignore_eos": True, "seed": 5}
    alone = plain.complete(**fields)["choices"]
    with ThreadPoolExecutor(9) as pool:
        canary = pool.submit(plain.complete, **fields)
        refused = [pool.submit(plain.post, CHAT_PATH, {"messages": HI, "n": 10**6}) for _ in range(50)]
        statuses = Counter(each.result().status_code for each in refused)
        assert canary.result()["choices"] == alone
    assert statuses == {400: 50} and plain.is_idle()
