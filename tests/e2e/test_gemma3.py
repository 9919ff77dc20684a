"""The real Gemma 3 270M: its tokens against llama.cpp's, and what it says; a base model, without a chat template.

Skipped where the model is not in the cache folder: these tests download nothing. `octavo pull gemma3-270m` brings it.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import BadRequestError, OpenAI

from engine.text.tokenizer import Tokenizer
from engine.weights.catalogue import cached_models
from engine.weights.gguf import GgufFile
from tests.e2e.processes import Server, serving

NAME = "gemma3-270m"
# [text, token ids as plain text, ids with its control tokens where these differ], by llama-cpp-python 0.3.36.
VECTORS = json.loads((Path(__file__).parent / "data" / "gemma3_llamacpp_tokens.json").read_text())

pytestmark = pytest.mark.skipif(NAME not in cached_models(), reason=f"{NAME} is not in the cache: run `octavo pull`")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(NAME, "--ctx", "2048") as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as sdk:
        yield sdk


def test_hard_strings_have_the_tokens_of_llama_cpp() -> None:
    with GgufFile.open(cached_models()[NAME]) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    for text, plain, *special in VECTORS:
        assert tokenizer.encode(text) == plain
        assert tokenizer.encode(text, parse_special=True) == (special[0] if special else plain)


def test_it_knows_the_capital_of_france(client: OpenAI) -> None:
    answer = client.completions.create(
        model=NAME, prompt="Q: What is the capital of France?\nA:", temperature=0, max_tokens=24, stop="\n"
    )
    assert answer.choices[0].text == " The capital of France is Paris."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 13  # <bos> too


def test_a_chat_is_refused_for_want_of_a_template(client: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="no chat template; use POST /v1/completions"):
        client.chat.completions.create(model=NAME, messages=[{"role": "user", "content": "Hello"}])


def test_what_the_cache_keeps_of_a_prompt_longer_than_the_window_changes_nothing(client: OpenAI) -> None:
    prompt = " ".join(f"{number} is followed by {number + 1}." for number in range(120))
    first, second = (
        client.completions.create(model=NAME, prompt=prompt, temperature=0, max_tokens=12, logprobs=1) for _ in range(2)
    )
    assert first.usage is not None and second.usage is not None
    assert first.usage.prompt_tokens > 600
    assert second.usage.prompt_tokens_details is not None
    assert (second.usage.prompt_tokens_details.cached_tokens or 0) > 500
    assert first.choices == second.choices
