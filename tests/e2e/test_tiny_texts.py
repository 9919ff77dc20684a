"""A real server with a tiny random model: embeddings and tokens beside answers."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from openai import AsyncOpenAI

from tests.e2e.processes import Server, serving
from tests.tiny.models import write_tiny_llama

TEXTS = [f"text {n}" + ", and more of it" * n for n in range(12)]
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = write_tiny_llama(tmp_path_factory.mktemp("models") / "tiny.gguf", types={"attn_q": "Q4_1"}, seed=4)
    with serving(str(path), "--lanes", "3") as server:
        yield server


async def test_embeddings_have_the_same_bits_alone_and_beside_answers(server: Server) -> None:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as client:
        alone = [(await client.embeddings.create(model="tiny", input=text)).data[0].embedding for text in TEXTS]
        answers = [
            client.chat.completions.create(**CHAT, max_tokens=40, extra_body={"ignore_eos": True})  # type: ignore[call-overload]
            for _ in range(4)
        ]
        together, *_ = await asyncio.gather(client.embeddings.create(model="tiny", input=TEXTS), *answers)
    assert [one.embedding for one in together.data] == alone
    assert len({tuple(vector) for vector in alone}) == len(TEXTS)
    assert all(abs(sum(value * value for value in vector) - 1) < 1e-5 for vector in alone)


async def test_a_chat_has_the_tokens_that_are_counted_and_rendered(server: Server) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        used = (await client.post("/v1/chat/completions", json={**CHAT, "max_tokens": 1})).json()["usage"]
        counted = (await client.post("/v1/chat/completions/input_tokens", json=CHAT)).json()
        rendered = (await client.post("/apply-template", json=CHAT)).json()
        tokenized = (await client.post("/tokenize", json=CHAT)).json()
        back = (await client.post("/detokenize", json={"tokens": tokenized["tokens"]})).json()
    assert counted["input_tokens"] == tokenized["count"] == used["prompt_tokens"]
    assert tokenized["tokens"] == rendered["token_ids"]
    assert back["content"] == rendered["prompt"] == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
