"""The switches that templates have for thinking, and the variables that they read."""

import pytest

from engine.text.formats.detection import template_variables, thinking_arguments
from tests.engine.text.vocabularies import load


@pytest.mark.parametrize(
    ("name", "off", "on"),
    [
        ("Qwen-Qwen3-0.6B", {"enable_thinking": False}, {"enable_thinking": True}),
        ("GLM-4.6", {"enable_thinking": False}, {"enable_thinking": True}),
        (
            "deepseek-ai-DeepSeek-V3.1",
            {"enable_thinking": False, "thinking": False},
            {"enable_thinking": True, "thinking": True},
        ),
        (
            "deepseek-ai-DeepSeek-V4",
            {"enable_thinking": False, "thinking": False},
            {"enable_thinking": True, "thinking": True, "reasoning_effort": "medium"},
        ),
        ("ibm-granite-granite-3.3-2B-Instruct", {"thinking": False}, {"thinking": True}),
        ("ByteDance-Seed-OSS", {"thinking_budget": 0}, {}),
        ("MiniMax-M3", {"thinking_mode": "disabled"}, {"thinking_mode": "enabled"}),
        ("Cohere2MoE", {"reasoning": False, "reasoning_effort": "none"}, {"reasoning_effort": "medium"}),
        ("openai-gpt-oss-120b", {}, {"reasoning_effort": "medium"}),
        ("tencent-Hy3", {"reasoning_effort": "no_think"}, {"reasoning_effort": "high"}),
        ("Kimi-K3", {"thinking": False}, {"thinking": True, "thinking_effort": "high"}),
        ("google-gemma-2-2b-it", {}, {}),
    ],
)
def test_templates_get_only_the_switches_that_they_read(
    name: str, off: dict[str, object], on: dict[str, object]
) -> None:
    source = load("templates")[name]
    assert thinking_arguments(source, True, "medium") == on
    assert off.items() <= thinking_arguments(source, False, "medium").items()


def test_switching_thinking_on_chooses_an_effort_only_where_the_template_must_have_one() -> None:
    assert thinking_arguments(load("templates")["tencent-Hy3"], True, None) == {"reasoning_effort": "high"}
    assert thinking_arguments(load("templates")["openai-gpt-oss-120b"], True, None) == {}


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ("{{ a }}{{ b.c }}{{ d['e'] }}", {"a", "b", "d"}),
        ("{% set a = 1 %}{{ a }}", set()),
        ("{% set a = a or 1 %}{{ a }}", {"a"}),
        ("{% if a is defined %}{{ a }}{% endif %}", {"a"}),
        ("{% if x %}{% set a = 1 %}{% endif %}{{ a }}", {"x", "a"}),
        ("{% if x %}{% set a = 1 %}{% else %}{% set a = 2 %}{% endif %}{{ a }}", {"x"}),
        ("{% for a in b if a.x == c %}{{ a }}{{ loop.index }}{% endfor %}{{ a }}", {"b", "c", "a"}),
        ("{% macro m(a, b=d) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}", {"c", "d"}),
        ("{% set a %}{{ b }}{% endset %}{{ a }}", {"b"}),
        ("{% generation %}{{ a }}{% endgeneration %}", {"a"}),
        ("{{ raise_exception('x') }}{{ namespace(a=b) }}", {"b"}),
        ("{{ a", {"a"}),
        ("{{ " + "(" * 5000 + "a" + ")" * 5000 + " }}", {"a"}),
    ],
)
def test_the_variables_that_a_template_takes_from_its_caller(source: str, read: set[str]) -> None:
    assert template_variables(source) == read
