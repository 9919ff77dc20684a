"""Cases of the areas "params", "context" and "errors": limits, nulls, and what must never reach the engine."""

from typing import Any

import httpx
import pytest

from server.settings import ServingOptions
from tests.server.harness import CHAT, http_client
from tests.server.scripted.engine import ScriptedModel, scripted_model

NULLABLE = [
    *("max_tokens", "max_completion_tokens", "stop", "n", "temperature"),
    *("top_p", "seed", "logit_bias", "tools", "tool_choice"),
    *("response_format", "stream_options", "logprobs", "top_logprobs", "presence_penalty"),
    *("frequency_penalty", "user", "stream", "min_tokens", "stop_token_ids"),
    *("bad_words", "allowed_token_ids", "structured_outputs", "guided_json", "thinking"),
    *("think", "reasoning_effort", "enable_thinking", "repetition_penalty", "return_token_ids"),
    *("max_time_ms", "parallel_tool_calls", "metadata", "continue_final_message"),
]


async def ask(model: ScriptedModel, **fields: Any) -> httpx.Response:
    async with http_client(model) as client:
        return await client.post("/v1/chat/completions", json={**CHAT, **fields})


@pytest.mark.parametrize("names", [*([name] for name in NULLABLE), NULLABLE], ids=lambda names: "-".join(names[:2]))
async def test_bb_022_null_is_the_same_as_absent(names: list[str]) -> None:
    """BB-022: for each optional field, and for all of them at once."""
    model = scripted_model("x")
    await ask(model)
    answer = await ask(model, **dict.fromkeys(names))
    assert answer.status_code == 200 and "x-ignored-params" not in answer.headers
    plain, nulls = model.service.requests
    assert (plain.sampling, plain.max_tokens, plain.stop) == (nulls.sampling, nulls.max_tokens, nulls.stop)
    assert (plain.logprobs, plain.constraint, plain.thinking) == (nulls.logprobs, nulls.constraint, nulls.thinking)


async def test_bb_024_max_completion_tokens_counts_thinking_too() -> None:
    """BB-024: at most 3 tokens, finish length; the newer name wins."""
    answer = (await ask(scripted_model(*"abcdef"), max_completion_tokens=3, max_tokens=5)).json()
    assert (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) == (3, "length")


@pytest.mark.parametrize(
    "bias",
    [
        {"99999999": 5},
        {"1024": 5},
        {"-1": 5},
        {"x": 5},
        {"1.5": 5},
        {"٣": 5},
        {" 3": 5},
        {"3": 100.5},
        {"3": -101},
        {"3": "5"},
        {"3": True},
        [[3, 5]],
        "3",
    ],
)
async def test_bb_026_a_logit_bias_outside_the_rules_is_refused(bias: Any) -> None:
    """BB-026: ids outside the vocabulary, keys that are no ids, values beyond 100."""
    model = scripted_model("x")
    answer = await ask(model, logit_bias=bias)
    assert answer.status_code == 400 and answer.json()["error"]["param"].startswith("logit_bias")
    assert model.service.requests == []


async def test_bb_026_a_logit_bias_reaches_the_engine() -> None:
    """BB-026: an empty map is fine, and a map of every token too."""
    model = scripted_model("x")
    everything = {str(token): -100 for token in range(1024)}
    assert [(await ask(model, logit_bias=each)).status_code for each in ({}, everything, {"7": 100})] == [200] * 3
    assert [len(request.sampling.logit_bias) for request in model.service.requests] == [0, 1024, 1]
    assert model.service.requests[2].sampling.logit_bias == ((7, 100.0),)


async def test_bb_026_a_huge_map_is_refused_soon() -> None:
    """BB-026: more entries than any vocabulary has."""
    answer = await ask(scripted_model("x"), logit_bias={str(token): 1 for token in range(300_001)})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "logit_bias"


async def test_bb_028_choices_are_distinct_requests_to_the_engine() -> None:
    """BB-028: without a seed nothing fixes one; with it each choice still has a random stream of its own."""
    model = scripted_model("x")
    await ask(model, n=4)
    await ask(model, n=4, seed=7)
    assert [(request.choice, request.sampling.seed) for request in model.service.requests] == [
        *((choice, None) for choice in range(4)),
        *((choice, 7) for choice in range(4)),
    ]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 1_000_000}, "n"),
        ({"n": 17}, "n"),
        ({"n": 0}, "n"),
        ({"n": -1}, "n"),
        ({"n": 10**30}, "n"),
        ({"best_of": 1_000_000}, "best_of"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"stop": ["s"] * 17}, "stop"),
        ({"stop": "s" * 1025}, "stop"),
        ({"stop_token_ids": [1] * 1025}, "stop_token_ids"),
        ({"stop_token_ids": [1024]}, "stop_token_ids"),
        ({"bad_words": ["w"] * 257}, "bad_words"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": [1024]}, "allowed_token_ids"),
        ({"metadata": {str(key): "v" for key in range(17)}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata.k"),
        ({"chat_template_kwargs": {f"k{key}": 1 for key in range(17)}}, "chat_template_kwargs"),
        ({"messages": [{"role": "user", "content": "x"}] * 16385}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 4097}]}, "messages[0].content"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}] * 513}, "tools"),
        ({"guided_choice": ["a"] * 10_001}, "guided_choice"),
        ({"min_tokens": 6, "max_tokens": 5}, "min_tokens"),
    ],
)
async def test_bb_029_everything_has_a_cap(fields: dict[str, Any], param: str) -> None:
    """BB-029: refused by name before anything is built of it."""
    model = scripted_model("x")
    answer = await ask(model, **fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert len(answer.content) < 1000 and model.service.requests == []


async def test_bb_029_the_operator_sets_the_cap_of_n() -> None:
    """BB-029: --max-n."""
    async with http_client(scripted_model("x"), ServingOptions(max_n=2)) as client:
        answers = [await client.post("/v1/chat/completions", json={**CHAT, "n": n}) for n in (2, 3)]
    assert [answer.status_code for answer in answers] == [200, 400]
    assert "at most 2" in answers[1].json()["error"]["message"]


async def test_bb_029_a_body_may_not_be_nested_without_end() -> None:
    """BB-029: a hundred levels are enough for any schema."""
    deep: Any = 1
    for _ in range(200):
        deep = {"a": deep}
    answer = await ask(scripted_model("x"), x_vendor=deep)
    assert answer.status_code == 400 and "nested" in answer.json()["error"]["message"]


@pytest.mark.parametrize("size", [19, 20, 21, 5000])
async def test_bb_055_a_prompt_that_reaches_the_context_is_refused_with_both_numbers(size: int) -> None:
    """BB-055: the prompt may fill all but one token."""
    model = scripted_model("x")
    model.context_length = 20
    overhead = len("user: \nassistant: ")
    answer = await ask(model, messages=[{"role": "user", "content": "y" * max(0, size - overhead)}])
    if size < 20:
        assert answer.status_code == 200 and answer.json()["usage"]["prompt_tokens"] == size
        return
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (size, 20)


@pytest.mark.parametrize("prompt", ["", [""], [], [[]], [[-1]], [[99999999]], [1, "a"], None, {}, 5, True, [None]])
async def test_bb_056_an_odd_prompt_never_reaches_the_engine(prompt: Any) -> None:
    """BB-056: 400 in OpenAI's shape, and the next request is served."""
    model = scripted_model("x")
    async with http_client(model) as client:
        answer = await client.post("/v1/completions", json={"model": "scripted", "prompt": prompt})
        after = await client.post("/v1/completions", json={"model": "scripted", "prompt": "ok"})
    assert {"message", "type", "param", "code"} <= answer.json()["error"].keys()
    assert (answer.status_code, after.status_code, len(model.service.requests)) == (400, 200, 1)


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b"5", b'"x"', b"{", b"\x1f\x8b\x08\x00", b"\xff\xfe{\x00}\x00"])
async def test_bb_056_a_body_that_is_no_object_is_refused(raw: bytes) -> None:
    """BB-056: also what is compressed, or in another encoding."""
    async with http_client(scripted_model("x")) as client:
        answer = await client.post("/v1/chat/completions", content=raw, headers={"content-type": "application/json"})
        empty = await client.post("/v1/chat/completions", json={**CHAT, "messages": []})
        blank = await client.post("/v1/chat/completions", json={**CHAT, "messages": [{"role": "user", "content": ""}]})
    assert {"message", "type", "param", "code"} <= answer.json()["error"].keys()
    assert (answer.status_code, empty.status_code, blank.status_code) == (400, 400, 200)


async def test_bb_080_a_request_brings_neither_template_nor_the_renderers_arguments() -> None:
    """BB-080: chat_template is refused; reserved names and values that are no scalars too."""
    bad: list[dict[str, Any]] = [
        {"chat_template": "{% for i in range(1000000000) %}{% endfor %}"},
        *({"chat_template_kwargs": {name: 1}} for name in ("tokenize", "messages", "tools", "bos_token")),
        *({"chat_template_kwargs": {name: 1}} for name in ("raise_exception", "add_generation_prompt", "__x", "a b")),
        {"chat_template_kwargs": {"deep": {"a": 1}}},
        {"chat_template_kwargs": {"list": []}},
    ]
    model = scripted_model("x")
    answers = [await ask(model, **fields) for fields in bad]
    assert [answer.status_code for answer in answers] == [400] * len(bad)
    assert all(answer.json()["error"]["param"].startswith("chat_template") for answer in answers)
    assert model.service.requests == []
