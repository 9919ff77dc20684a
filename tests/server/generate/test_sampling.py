"""Where a request is silent, the model's own defaults hold; what a request says wins, and /props tells them."""

from typing import Any

import pytest

from engine.api.sampling import Sampling
from server.fields.chat import ChatBody
from server.generate.sampling import sampling_of
from tests.server.harness import http_client
from tests.server.scripted.engine import ScriptedModel

MODEL = ScriptedModel(sampling=Sampling(temperature=0.6, top_k=20, top_p=0.95, min_p=0.05, repetition_penalty=1.1))


def sampled(**fields: Any) -> Sampling:
    body = ChatBody.model_validate({"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields})
    return sampling_of(body, MODEL)


def test_a_silent_request_gets_the_models_defaults() -> None:
    found = sampled()
    assert (found.temperature, found.top_k, found.top_p, found.min_p) == (0.6, 20, 0.95, 0.05)
    assert found.repetition_penalty == 1.1


def test_null_is_silence() -> None:
    assert sampled(temperature=None, top_p=None) == sampled()


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", 1.0), ("top_k", 0), ("top_p", 1.0), ("min_p", 0.0), ("repetition_penalty", 1.0)],
)
def test_what_a_request_says_wins_even_where_it_is_the_usual(field: str, value: float) -> None:
    found = sampled(**{field: value})
    assert getattr(found, field) == value
    assert getattr(sampled(), field) != value


def test_the_other_name_of_the_repetition_penalty_counts_too() -> None:
    assert sampled(repeat_penalty=1.3).repetition_penalty == 1.3


async def test_props_tell_the_models_defaults() -> None:
    async with http_client(MODEL) as client:
        params = (await client.get("/props")).json()["default_generation_settings"]["params"]
    assert {key: params[key] for key in ("temperature", "top_k", "top_p", "min_p", "repeat_penalty")} == {
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
        "min_p": 0.05,
        "repeat_penalty": 1.1,
    }
