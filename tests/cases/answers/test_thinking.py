"""Area thinking: what is thought stays apart from what is said, however the answer ends and whoever asks."""

from typing import Any

import pytest

from tests.cases.real import CHAT_PATH, HI, Json, RealServer
from tests.server.scripted.joined import whole_choice

ON: Json = {"chat_template_kwargs": {"enable_thinking": True}}


@pytest.mark.parametrize("kind", ["opens", "thinks"])
def test_thinking_that_is_cut_off_is_all_thinking(request: pytest.FixtureRequest, kind: str) -> None:
    """BB-048: at 64 lengths; neither tag is in the output where the template opens thinking in the prompt."""
    server: RealServer = request.getfixturevalue(kind)
    banned = [server.token("</think>"), server.token("<tool_call>"), *server.model.tokenizer.end_ids]
    opening = {str(server.token("<think>")): -100 if kind == "opens" else 0}
    bias = opening | {str(token): -100 for token in banned}
    before = ""
    for length in range(1, 65, 1 if kind == "opens" else 7):
        fields: Json = {**ON, "temperature": 0.9, "seed": 6, "logit_bias": bias, "max_tokens": length}
        if kind == "thinks":  # the answer opens it, as it is made to
            fields |= {"structured_outputs": {"choice": ["zz"]}, "logit_bias": {**bias, str(server.token("z")): -100}}
        (choice,) = server.choices(**fields)
        assert (choice.content, choice.finish) == ("", {"finish_reason": "length"})
        assert choice.reasoning.startswith(before.rstrip("\ufffd"))
        assert "think>" not in choice.reasoning
        before = choice.reasoning
    assert len(before) > 30


def test_the_whole_answer_has_null_or_empty_content_then(opens: RealServer) -> None:
    """BB-048: and says how many tokens were thought."""
    bias = {str(opens.token("</think>")): -100}
    answer = opens.chat(**ON, max_tokens=7, ignore_eos=True, logit_bias=bias, seed=1)
    message = answer["choices"][0]["message"]
    assert not message["content"] and message["reasoning"] == message["reasoning_content"] != ""
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 7


@pytest.mark.parametrize("budget", [0, 1, 5, 20])
def test_thinking_that_ends_in_time_is_followed_by_content(opens: RealServer, budget: int) -> None:
    """BB-048: the same text before and after its end, streamed and whole."""
    fields: Json = {**ON, "thinking_token_budget": budget, "structured_outputs": {"choice": ["said"]}, "max_tokens": 80}
    (choice,) = opens.choices(**fields)
    assert (choice.content, choice.finish) == ("said", {"finish_reason": "stop"})
    assert bool(choice.reasoning) == (budget > 0)


OFF: list[Json] = [
    {"chat_template_kwargs": {"enable_thinking": False}},
    {"enable_thinking": False},
    {"reasoning_effort": "none"},
    {"think": False},
    {"thinking": {"type": "disabled"}},
    {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
    {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "high"},
]


@pytest.mark.parametrize("fields", OFF, ids=str)
@pytest.mark.parametrize("kind", ["opens", "thinks"])
def test_every_way_to_switch_it_off_begins_with_content(
    request: pytest.FixtureRequest, kind: str, fields: Json
) -> None:
    """BB-050: the toggle has no effect, or the parser does not follow it."""
    server: RealServer = request.getfixturevalue(kind)
    prompt = server.prompt(HI, **fields)
    assert prompt.rstrip().endswith("</think>")
    bias = {str(token): -100 for token in server.model.tokenizer.end_ids}
    (choice,) = server.choices(**fields, max_tokens=20, temperature=1.2, logit_bias=bias)
    assert choice.reasoning == "" and choice.content
    assert "</think>" not in choice.content
    whole = server.chat(**fields, max_tokens=4, seed=1)
    assert not {"reasoning", "reasoning_content"} & whole["choices"][0]["message"].keys()
    assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0


@pytest.mark.parametrize("effort", ["minimal", "low", "medium", "high", "xhigh"])
def test_an_effort_switches_it_on(opens: RealServer, effort: str) -> None:
    """BB-050: reasoning_effort is unknown; here it is what the template's own switch says."""
    assert opens.prompt(HI, reasoning_effort=effort) == opens.prompt(HI, **ON)
    assert opens.prompt(HI, **ON).endswith("<think>\n")


def test_without_a_word_the_template_decides(opens: RealServer, thinks: RealServer) -> None:
    """BB-050: QwQ's template, as published here, thinks where it is told to; Qwen 3's leaves it to the model."""
    assert opens.prompt(HI).endswith("<think>\n</think>")
    assert thinks.prompt(HI) == thinks.prompt(HI, **ON)
    assert thinks.prompt(HI).endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize("fields", [*OFF, ON, {"reasoning_effort": "low"}, {"thinking_token_budget": 4}], ids=str)
def test_a_model_that_does_not_think_answers_all_the_same(calls: RealServer, fields: Json) -> None:
    """BB-050: the flags change nothing there, and it says so."""
    plain: Json = {"messages": HI, "temperature": 0, "max_tokens": 6}
    answer = calls.post(CHAT_PATH, {**plain, **fields})
    assert answer.status_code == 200
    assert whole_choice(answer.json()["choices"][0]) == whole_choice(calls.chat(**plain)["choices"][0])
    assert answer.headers["x-ignored-params"]


@pytest.mark.parametrize("value", ["false", 0, 1, [], {"a": 1}])
def test_a_switch_of_a_wrong_type_is_refused_or_the_templates_affair(opens: RealServer, value: Any) -> None:
    """BB-050: arrays and objects are no values for a template; never a 500."""
    answer = opens.post(
        CHAT_PATH, {"messages": HI, "chat_template_kwargs": {"enable_thinking": value}, "max_tokens": 1}
    )
    assert answer.status_code == (400 if isinstance(value, list | dict) else 200)
    typed = opens.refusal(CHAT_PATH, {"messages": HI, "enable_thinking": value})
    assert typed["param"] == "enable_thinking"


def test_the_closing_tag_is_never_content(thinks: RealServer) -> None:
    """BB-050: whatever random weights write, and however thinking is set."""
    likely = {str(thinks.token(tag)): 4 for tag in ("<think>", "</think>")}
    thought = 0
    for seed in range(12):
        (choice,) = thinks.choices(seed=seed, temperature=1.5, max_tokens=40, logit_bias=likely)
        assert "</think>" not in choice.content
        thought += bool(choice.reasoning)
    assert thought
