"""A real server with tiny random models: the same bytes alone and together, whatever lanes and threads."""

import asyncio
import signal
from pathlib import Path

import httpx
import pytest
from openai import AsyncOpenAI

from tests.e2e.processes import serving
from tests.tiny.models import write_tiny_llama

PROMPTS = [f"Tell me about number {n}" + ", please" * (n % 5) + "." * n for n in range(16)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    return write_tiny_llama(path, types={"token_embd": "Q8_0", "attn_q": "Q4_1", "ffn_down": "Q4_1"}, seed=3)


async def streamed(client: AsyncOpenAI, index: int) -> tuple[str, str, int]:
    """The text, finish reason and completion tokens of one streamed chat."""
    text, reason, tokens = "", "", 0
    stream = await client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": PROMPTS[index]}],
        max_tokens=24 + index,
        temperature=0 if index % 2 else 1.3,
        seed=index,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    async for chunk in stream:
        if chunk.usage:
            tokens = chunk.usage.completion_tokens
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
    return text, reason, tokens


async def all_answers(url: str, *, together: bool) -> list[tuple[str, str, int]]:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
        if together:
            return list(await asyncio.gather(*(streamed(client, index) for index in range(16))))
        return [await streamed(client, index) for index in range(16)]


async def test_sixteen_streams_give_the_bytes_of_each_alone(model: Path) -> None:
    with serving(str(model), "--lanes", "8") as server:
        alone = await all_answers(server.url, together=False)
        together = await all_answers(server.url, together=True)
    with serving(str(model), "--lanes", "3", "--threads", "1", "--isa", "generic") as server:
        elsewhere = await all_answers(server.url, together=True)
    assert together == alone
    assert elsewhere == alone
    assert len({text for text, _, _ in alone}) == 16
    assert [tokens for _, _, tokens in alone] == [24 + index for index in range(16)]
    assert {reason for _, reason, _ in alone} == {"length"}


async def test_streamed_and_collected_answers_are_equal(model: Path) -> None:
    body = {"model": "tiny", "prompt": "abc", "max_tokens": 20, "seed": 7, "ignore_eos": True}
    with serving(str(model)) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            whole = (await client.post("/v1/completions", json=body)).json()
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="unused") as sdk:
            stream = await sdk.completions.create(
                model="tiny", prompt="abc", max_tokens=20, seed=7, stream=True, extra_body={"ignore_eos": True}
            )
            text = "".join([chunk.choices[0].text async for chunk in stream if chunk.choices])
    assert text == whole["choices"][0]["text"] != ""
    assert whole["usage"] == {**whole["usage"], "completion_tokens": 20}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_idle_server_with_exit_code_0(model: Path, number: signal.Signals) -> None:
    with serving(str(model)) as server:
        server.process.send_signal(number)
        assert server.process.wait(timeout=60) == 0
