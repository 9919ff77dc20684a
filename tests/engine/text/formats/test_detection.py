"""Which format each published template is found to have, and what a format tells of itself."""

import pytest

from engine.api.request import Thinking
from engine.text.formats.answer_format import answer_format
from engine.text.formats.detection import think_tags, tool_format
from tests.engine.text.formats.answers import make, vocabulary
from tests.engine.text.vocabularies import load, tokenizer

FOUND = {
    "ByteDance-Seed-OSS": "seed_xml",
    "HuggingFaceTB-SmolLM3-3B": None,
    "Kimi-K2-Instruct": "kimi_k2",
    "Kimi-K2-Thinking": "kimi_k2",
    "MiniMax-M2": "minimax",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "qwen_xml",
    "Qwen3-Coder": "qwen_xml",
    "Qwen3.5-4B": "qwen_xml",
    "StepFun3.5-Flash": "qwen_xml",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "deepseek_v3",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "deepseek_v3",
    "deepseek-ai-DeepSeek-V3.1": "deepseek_v3.1",
    "deepseek-ai-DeepSeek-V3.2": "deepseek_v3.2",
    "deepseek-ai-DeepSeek-V4": "deepseek_v4",
    "deepseek-ai-DeepSeek-V4-Flash-0731": "deepseek_v4",
    "google-gemma-2-2b-it": None,
    "llama-cpp-deepseek-r1": "deepseek_v3",
    "llama-cpp-rwkv-world": None,
    "meta-llama-Llama-3.1-8B-Instruct": "llama3",
    "meta-llama-Llama-3.2-3B-Instruct": "llama3",
    "meta-llama-Llama-3.3-70B-Instruct": "llama3",
    "microsoft-Phi-3.5-mini-instruct": None,
    "moonshotai-Kimi-K2": "kimi_k2",
}
OTHER_TAGS = {
    "ByteDance-Seed-OSS": "<seed:think>",
    "Cohere2MoE": "<|START_THINKING|>",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "<|START_THINKING|>",
    "MiniMax-M3": "<mm:think>",
    "mistralai-Ministral-3-14B-Reasoning-2512": "[THINK]",
    "unsloth-Apriel-1.5": "<thinking>",
}


@pytest.mark.parametrize("name", load("templates"))
def test_the_tool_format_of_every_published_template(name: str) -> None:
    found = tool_format(load("templates")[name])
    assert (found and found.name) == FOUND.get(name, "hermes")


@pytest.mark.parametrize("name", load("templates"))
def test_the_thinking_tags_of_every_published_template(name: str) -> None:
    source = load("templates")[name]
    tags = think_tags(source)
    assert (tags and tags[0]) == OTHER_TAGS.get(name, "<think>" if "</think>" in source else None)


def test_a_model_without_a_template_neither_thinks_nor_calls() -> None:
    form = answer_format(None, tokenizer("smollm"))
    assert form.thinking is None
    assert form.tools is None
    assert form.marks == frozenset()
    assert form.thinking_plan(inside=False, budget=3) is None
    assert not form.opens_thinking("<think>")


def test_only_tokens_of_their_own_are_marks() -> None:
    source = load("templates")["Qwen-Qwen3-0.6B"]
    names = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
    full = vocabulary(names)
    assert {full.token_text(token) for token in answer_format(source, full).marks} == set(names)
    assert answer_format(source, vocabulary([])).marks == frozenset()


def test_the_prompts_tail_tells_whether_thinking_has_begun() -> None:
    form, _ = make("hermes")
    assert form.opens_thinking("<|im_start|>assistant\n<think>\n")
    assert form.opens_thinking("<think>")
    assert not form.opens_thinking("<think>\n\n</think>\n\n")
    assert not form.opens_thinking("What does <think> mean?<|im_end|>\n<|im_start|>assistant\n")


def test_a_plan_for_thinking_names_its_tokens() -> None:
    form, words = make("hermes")
    start, end = (words.encode(tag, parse_special=True)[0] for tag in ("<think>", "</think>"))
    assert form.thinking_plan(inside=True, budget=9) == Thinking(inside=True, start_id=start, end_ids=(end,), budget=9)
    form, words = make("hermes", marked=False)
    assert form.thinking_plan(inside=False, budget=None) == Thinking(
        inside=False, start_id=None, end_ids=tuple(words.encode("</think>"))
    )
