"""Cases of the area "thinking": what is thought, what is said, and how it is switched."""

from typing import Any

import pytest

from server.settings import ServingOptions
from tests.server.harness import CHAT, http_client
from tests.server.scripted.engine import PLAIN_SOURCE, SOURCE, Mark, PlainTemplate, ScriptedModel, ScriptedService
from tests.server.scripted.joined import joined, whole_choice

ALWAYS = "{{ messages }}<think></think>"  # a template without a switch


def thinker(*steps: Any, template: PlainTemplate | None = None) -> ScriptedModel:
    return ScriptedModel(ScriptedService(steps or ("x",)), template or PlainTemplate(opening="<think>\n"))


async def ask(model: ScriptedModel, **fields: Any) -> Any:
    async with http_client(model) as client:
        return await client.post("/v1/chat/completions", json={**CHAT, **fields})


@pytest.mark.parametrize("size", [1, 2, 5, 9])
async def test_bb_048_thinking_that_is_cut_off_stays_thinking(size: int) -> None:
    """BB-048: all text is reasoning, content is empty, finish is length, streamed or not."""
    model = thinker(*(f"thought{index} " for index in range(20)))
    whole = (await ask(model, max_tokens=size)).json()
    stream = joined((await ask(model, max_tokens=size, stream=True)).text).choices[0]
    choice = whole_choice(whole["choices"][0])
    for each in (choice, stream):
        assert each.reasoning.strip() == " ".join(f"thought{index}" for index in range(size))
        assert (each.content, each.finish) == ("", {"finish_reason": "length"})
    assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] == size


@pytest.mark.parametrize(
    "fields",
    [
        {"enable_thinking": False},
        {"think": False},
        {"thinking": {"type": "disabled"}},
        {"reasoning_effort": "none"},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "high"},
        {"enable_thinking": False, "reasoning_effort": "high"},
    ],
)
async def test_bb_050_every_way_to_switch_thinking_off_works(fields: dict[str, Any]) -> None:
    """BB-050: the template hears of it, the answer begins at once, and nothing is listed as ignored."""
    model = thinker("Hi", " you")
    answer = await ask(model, **fields)
    assert isinstance(model.template, PlainTemplate)
    assert model.template.calls[0][1]["enable_thinking"] is False
    assert answer.json()["choices"][0]["message"] == {"role": "assistant", "content": "Hi you", "refusal": None}
    assert "x-ignored-params" not in answer.headers


@pytest.mark.parametrize(
    "fields",
    [
        {"enable_thinking": True},
        {"think": "high"},
        {"thinking": {"type": "enabled"}},
        {"reasoning_effort": "low"},
        {"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": "none"},
    ],
)
async def test_bb_050_every_way_to_switch_it_on_works_over_the_servers_default(fields: dict[str, Any]) -> None:
    """BB-050: the request's own word counts before --default-chat-template-kwargs."""
    model = thinker("hm", Mark("</think>"), "Hi")
    options = ServingOptions(default_template_kwargs={"enable_thinking": False})
    async with http_client(model, options) as client:
        default = await client.post("/v1/chat/completions", json=CHAT)
        answer = await client.post("/v1/chat/completions", json={**CHAT, **fields})
    assert isinstance(model.template, PlainTemplate)
    assert [call[1]["enable_thinking"] for call in model.template.calls] == [False, True]
    assert default.status_code == 200
    assert answer.json()["choices"][0]["message"]["reasoning_content"] == "hm"


async def test_bb_050_thinking_that_a_template_cannot_switch_off_is_ended_at_once() -> None:
    """BB-050: where the prompt opens thinking all the same, its budget is 0."""
    model = thinker("x", template=PlainTemplate(source=ALWAYS, opening="<think>\n"))
    await ask(model, think=False)
    thinking = model.service.requests[0].thinking
    assert thinking is not None and thinking.budget == 0


@pytest.mark.parametrize(
    ("fields", "budget"),
    [
        ({}, None),
        ({"thinking_token_budget": 40}, 40),
        ({"thinking_token_budget": -1, "thinking": {"type": "enabled", "budget_tokens": 9}}, None),
        ({"thinking": {"type": "enabled", "budget_tokens": 9}}, 9),
        ({"thinking_token_budget": 0}, 0),
    ],
)
async def test_a_budget_reaches_the_engine(fields: dict[str, Any], budget: int | None) -> None:
    model = thinker("x")
    answer = await ask(model, **fields)
    thinking = model.service.requests[0].thinking
    assert answer.status_code == 200 and thinking is not None
    assert (thinking.inside, thinking.budget) == (True, budget)


async def test_bb_050_flags_on_a_model_that_does_not_think_are_listed() -> None:
    """BB-050: they change nothing, and it says so."""
    model = thinker("x", template=PlainTemplate(source=PLAIN_SOURCE))
    answer = await ask(
        model, reasoning_effort="low", thinking_token_budget=5, chat_template_kwargs={"enable_thinking": True}
    )
    assert answer.status_code == 200 and model.service.requests[0].thinking is None
    assert set(answer.headers["x-ignored-params"].split(",")) == {
        "reasoning_effort",
        "thinking_token_budget",
        "chat_template_kwargs.enable_thinking",
    }


async def test_both_names_of_thinking_are_sent_unless_it_is_not_wanted() -> None:
    model = thinker("hm", Mark("</think>"), "Hi")
    both = (await ask(model)).json()["choices"][0]["message"]
    none = (await ask(model, include_reasoning=False)).json()
    assert (both["reasoning_content"], both["reasoning"], both["content"]) == ("hm", "hm", "Hi")
    assert none["choices"][0]["message"] == {"role": "assistant", "content": "Hi", "refusal": None}
    assert none["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


async def test_a_tag_that_is_quoted_is_no_tag() -> None:
    model = thinker("Write <think> and </think>.", template=PlainTemplate(source=SOURCE))
    assert (await ask(model)).json()["choices"][0]["message"]["content"] == "Write <think> and </think>."
