"""A predicted answer reaches the engine as tokens, and usage says how much of it came."""

from dataclasses import replace
from typing import Any

import pytest

from engine.api.request import FinishEvent, FinishReason
from server.generate.answer import Finish, Speed
from server.generate.figures import timings, usage
from tests.server.generate.test_figures import TIMES
from tests.server.harness import CHAT, http_client
from tests.server.scripted.engine import scripted_model

PARTS = [{"type": "text", "text": "Hello"}, {"type": "text", "text": " there"}]


@pytest.mark.parametrize("content", ["Hello there", PARTS])
async def test_its_text_is_told_to_the_engine_in_tokens(content: Any) -> None:
    model = scripted_model("x")
    async with http_client(model) as client:
        body = {**CHAT, "prediction": {"type": "content", "content": content}}
        answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200 and "x-ignored-params" not in answer.headers
    (request,) = model.service.requests
    assert request.prediction == tuple(model.tokenizer.encode("Hello there"))


async def test_no_more_of_it_is_kept_than_an_answer_could_have() -> None:
    model = scripted_model("x")
    async with http_client(model) as client:
        body = {**CHAT, "prediction": {"type": "content", "content": "word " * 100_000}}
        answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200
    assert 0 < len(model.service.requests[0].prediction) <= model.context_length


@pytest.mark.parametrize(
    ("prediction", "param"),
    [
        ("text", "prediction"),
        ({}, "prediction.type"),
        ({"type": "content"}, "prediction.content"),
        ({"type": "other", "content": "x"}, "prediction.type"),
        ({"type": "content", "content": 5}, "prediction.content"),
        ({"type": "content", "content": [{"type": "image_url", "image_url": {}}]}, "prediction.content[0]"),
    ],
)
async def test_what_is_no_prediction_is_refused_by_name(prediction: Any, param: str) -> None:
    async with http_client(scripted_model("x")) as client:
        answer = await client.post("/v1/chat/completions", json={**CHAT, "prediction": prediction})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(param)


async def test_keys_of_it_that_nobody_reads_are_listed() -> None:
    async with http_client(scripted_model("x")) as client:
        parts = [{"type": "text", "text": "a", "hint": 1}]
        body = {**CHAT, "prediction": {"type": "content", "content": parts, "speed": 9}}
        answer = await client.post("/v1/chat/completions", json=body)
    assert answer.headers["x-ignored-params"] == "prediction.speed,prediction.content[].hint"


async def test_completions_list_it_as_without_effect() -> None:
    async with http_client(scripted_model("x")) as client:
        body = {"model": "scripted", "prompt": "a", "prediction": {"type": "content", "content": "b"}}
        answer = await client.post("/v1/completions", json=body)
    assert answer.status_code == 200 and answer.headers["x-ignored-params"] == "prediction"


def predicted(accepted: int, rejected: int) -> Finish:
    event = FinishEvent(
        reason=FinishReason.STOP,
        prompt_tokens=10,
        completion_tokens=41,
        accepted_prediction_tokens=accepted,
        rejected_prediction_tokens=rejected,
        timings=replace(TIMES, drafted_tokens=30, accepted_tokens=20),
    )
    return Finish(reason="stop", event=event, reasoning_tokens=0)


def test_usage_adds_up_what_came_of_the_predictions() -> None:
    details = usage([predicted(5, 2), predicted(3, 4)], 2)["completion_tokens_details"]
    assert details == {"reasoning_tokens": 0, "accepted_prediction_tokens": 8, "rejected_prediction_tokens": 6}


def test_timings_count_drafts_and_the_passes_that_they_spared() -> None:
    figures = timings(predicted(5, 2).event, speed=Speed(1_000_000, 80e6))
    assert (figures["draft_n"], figures["draft_n_accepted"]) == (30, 20)
    assert figures["bandwidth_percent"] == 12.5  # 20 passes of 1 MB in 2 s of 80 MB/s
