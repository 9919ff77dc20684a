"""A sampling number that is written once, in engine/api/sampling.py, is in every body, table and answer."""

from typing import Any

import pytest

from engine.api.sampling import NEUTRAL, NUMBERS, Api
from server.api.messages.body import MESSAGES_PARAMETERS, MessagesBody
from server.api.responses.body import RESPONSES_PARAMETERS, ResponsesBody
from server.api.status.answers import GenerationDefaults
from server.fields.chat import ChatBody
from server.fields.completions import CompletionBody
from server.fields.parameters import CHAT_PARAMETERS, COMPLETION_PARAMETERS
from server.fields.sampling import SampledBody, props_values, sampling_keys

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
BODIES: list[tuple[type[SampledBody], Api, dict[str, Any], Any]] = [
    (ChatBody, "completions", CHAT, CHAT_PARAMETERS),
    (CompletionBody, "completions", {"model": "m", "prompt": "hi"}, COMPLETION_PARAMETERS),
    (MessagesBody, "messages", {**CHAT, "max_tokens": 5}, MESSAGES_PARAMETERS),
    (ResponsesBody, "responses", {"model": "m", "input": "hi"}, RESPONSES_PARAMETERS),
]


@pytest.mark.parametrize(("body", "api", "least", "table"), BODIES)
def test_a_body_has_the_numbers_of_its_api_and_its_table_knows_them(
    body: type[SampledBody], api: Api, least: dict[str, Any], table: dict[str, object]
) -> None:
    keys = set(sampling_keys(api))
    every_name = {key for name, number in NUMBERS.items() for key in (name, *number.other_names)}
    assert keys == every_name & set(body.model_fields) == every_name & set(table)
    assert keys >= {"temperature", "top_k", "seed"}


@pytest.mark.parametrize(("body", "api", "least", "table"), BODIES)
def test_only_what_was_sent_is_stated(
    body: type[SampledBody], api: Api, least: dict[str, Any], table: dict[str, object]
) -> None:
    assert body.model_validate({**least, "seed": None}).stated_sampling == {}
    sent = {"temperature": 1.0, "top_k": 0, "seed": 3}
    assert body.model_validate({**least, **sent}).stated_sampling == sent


@pytest.mark.parametrize(("body", "api", "least", "table"), BODIES)
def test_each_bound_is_kept(body: type[SampledBody], api: Api, least: dict[str, Any], table: dict[str, object]) -> None:
    for name, number in NUMBERS.items():
        if api in number.apis:
            most = number.bounds_in(api).le
            assert body.model_validate({**least, name: most}).stated_sampling == {name: most}
            with pytest.raises(ValueError, match=name):
                body.model_validate({**least, name: most + 1})


def test_a_whole_number_may_come_as_a_float_but_not_as_a_text() -> None:
    assert ChatBody.model_validate({**CHAT, "top_k": 5.0}).stated_sampling == {"top_k": 5}
    with pytest.raises(ValueError, match="top_k"):
        ChatBody.model_validate({**CHAT, "top_k": "5"})


def test_the_first_of_two_names_counts() -> None:
    body = ChatBody.model_validate({**CHAT, "repeat_penalty": 1.5, "repetition_penalty": 1.2})
    assert body.stated_sampling == {"repetition_penalty": 1.2}


def test_props_show_each_number_that_has_a_default() -> None:
    shown = GenerationDefaults.model_validate(props_values(NEUTRAL)).model_dump()
    assert list(shown) == [
        *("temperature", "top_k", "top_p", "min_p", "frequency_penalty", "presence_penalty", "repeat_penalty"),
        "n_predict",
    ]
