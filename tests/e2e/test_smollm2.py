"""The real model, SmolLM2-135M-Instruct: through the OpenAI SDK, and against llama.cpp's logits.

Skipped where the model is not in the cache folder: these tests download nothing. `octavo pull` brings it.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam

from engine.measure.score import score_tokens
from engine.weights.catalogue import cached_models
from engine.weights.files.gguf import GgufFile
from tests.e2e.processes import Server, serving

Float64 = NDArray[np.float64]
NAME = "smollm2-135m"
QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the capital of France?"}]

pytestmark = pytest.mark.skipif(NAME not in cached_models(), reason=f"{NAME} is not in the cache: run `octavo pull`")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as sdk:
        yield sdk


def test_it_knows_the_capital_of_france(client: OpenAI) -> None:
    answer = client.chat.completions.create(model=NAME, messages=QUESTION, temperature=0)
    choice = answer.choices[0]
    assert "Paris" in (choice.message.content or "")
    assert choice.finish_reason == "stop"
    assert answer.usage is not None
    # 31 tokens: the template's default system message, the question and the opened answer.
    assert answer.usage.prompt_tokens == 37
    assert answer.usage.total_tokens == 37 + answer.usage.completion_tokens


def test_streaming_gives_the_same_answer_and_usage(client: OpenAI) -> None:
    whole = client.chat.completions.create(model=NAME, messages=QUESTION, temperature=0)
    chunks = list(
        client.chat.completions.create(
            model=NAME,
            messages=QUESTION,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]


async def test_sixteen_streams_give_the_bytes_of_each_alone(server: Server) -> None:
    topics = [
        "rain",
        "tea",
        "iron",
        "Rome",
        "bread",
        "owls",
        "jazz",
        "chess",
        "snow",
        "salt",
        "maps",
        "clay",
        "wool",
        "rye",
        "ants",
        "fog",
    ]

    async def ask(client: AsyncOpenAI, topic: str) -> str:
        stream = await client.chat.completions.create(
            model=NAME,
            messages=[{"role": "user", "content": f"Write two sentences about {topic}."}],
            temperature=0.8,
            seed=11,
            max_tokens=48,
            stream=True,
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as client:
        alone = [await ask(client, topic) for topic in topics]
        together = await asyncio.gather(*(ask(client, topic) for topic in topics))
    assert list(together) == alone
    assert len(set(alone)) == 16


def test_logits_agree_with_llama_cpp() -> None:
    """llama.cpp quantizes activations too: its distance from float activations is the measure of ours."""
    theirs = np.load(Path(__file__).parent / "data" / "smollm2_llamacpp_logits.npz")["logits"].astype(np.float64)
    with GgufFile.open(cached_models()[NAME]) as file:
        tokens = list(range(100, 100 + len(theirs)))
        ours = score_tokens(file, tokens).astype(np.float64)
        exact = score_tokens(file, tokens, activations="f32", kv_type="f32").astype(np.float64)
    assert (ours.argmax(axis=1) == theirs.argmax(axis=1)).mean() >= 0.9
    assert divergence(exact, ours).mean() < 0.5 * divergence(exact, theirs).mean()
    assert divergence(theirs, ours).mean() < 0.01


def divergence(p_logits: Float64, q_logits: Float64) -> Float64:
    """Kullback-Leibler divergence of each row."""
    p, q = log_softmax(p_logits), log_softmax(q_logits)
    rows: Float64 = (np.exp(p) * (p - q)).sum(axis=1)
    return rows


def log_softmax(logits: Float64) -> Float64:
    shifted = logits - logits.max(axis=1, keepdims=True)
    normed: Float64 = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return normed
