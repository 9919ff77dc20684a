"""Public failures of other servers, in the areas of embeddings and of tokens: each must not happen here."""

import asyncio
import base64
import sys
from typing import Any

import numpy as np
import pytest

from engine.text.bpe import ByteLevelBpe
from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from tests.engine.text.vocabularies import FILES, load, model, tiny_bpe_metadata, tokenizer
from tests.server.harness import http_client, openai_client
from tests.server.scripted.engine import ScriptedModel, scripted_model


async def test_base64_is_little_endian_float32_and_equals_the_floats() -> None:
    """BB-071: the encoding that openai-python asks for by default is ignored, or packed wrongly."""
    answers = {}
    async with http_client(scripted_model()) as client:
        for encoding in ("float", "base64"):
            body = {"model": "scripted", "input": ["a", "b"], "encoding_format": encoding}
            answers[encoding] = (await client.post("/v1/embeddings", json=body)).json()["data"]
        refused = await client.post(
            "/v1/embeddings", json={"model": "scripted", "input": "a", "encoding_format": "f16"}
        )
    for index, (floats, packed) in enumerate(zip(answers["float"], answers["base64"], strict=True)):
        raw = base64.b64decode(packed["embedding"], validate=True)
        assert raw == np.array(floats["embedding"], np.float32).astype("<f4").tobytes()
        assert floats["index"] == packed["index"] == index
    assert refused.status_code == 400


async def test_the_sdk_without_an_encoding_gets_the_same_numbers() -> None:
    """BB-071."""
    async with openai_client(scripted_model()) as client:
        by_default = await client.embeddings.create(model="scripted", input=["a", "b"])
        floats = await client.embeddings.create(model="scripted", input=["a", "b"], encoding_format="float")
    assert [one.embedding for one in by_default.data] == [
        np.array(one.embedding, np.float32).tolist() for one in floats.data
    ]


class RealTokenizer(ScriptedModel):
    """The scripted engine behind a real model's tokenizer."""

    def __init__(self, real: Tokenizer, template: Any = None) -> None:
        super().__init__(template=template, vocab_size=real.vocab_size, context_length=100_000)
        self._real = real

    @property
    def tokenizer(self) -> Any:
        return self._real


@pytest.mark.parametrize("name", FILES)
async def test_the_tokens_are_those_of_the_reference(name: str) -> None:
    """BB-007: other ids than the model's own tokenizer gives, next to added tokens, runs of spaces, digits, accents."""
    vectors = [*model(name)["vectors"][:40], *((load("texts")[at], ids) for at, ids in model(name)["llama_cpp"][:60])]
    async with http_client(RealTokenizer(tokenizer(name))) as client:
        for text, ids in vectors:
            answer = await client.post("/tokenize", json={"content": text, "parse_special": False})
            assert answer.json()["tokens"] == ids, text


@pytest.mark.parametrize("template_writes_it", [True, False])
@pytest.mark.parametrize("model_wants_it", [True, False])
async def test_bos_stands_once_or_not_at_all(template_writes_it: bool, model_wants_it: bool) -> None:
    """BB-008: the template writes BOS and the tokenizer adds it again."""
    real = Tokenizer.from_metadata(tiny_bpe_metadata(add_bos_token=model_wants_it))
    bos = real.bos_id
    assert bos is not None
    source = ("{{ bos_token }}" if template_writes_it else "") + "{% for m in messages %}{{ m.content }}{% endfor %}"
    template = ChatTemplate(source, bos_token=real.token_text(bos), eos_token="", control_tokens=real.control_tokens)
    async with http_client(RealTokenizer(real, template)) as client:
        answer = await client.post("/apply-template", json={"messages": [{"role": "user", "content": "hi"}]})
    assert answer.json()["token_ids"].count(bos) == int(template_writes_it or model_wants_it)
    assert (answer.json()["token_ids"][0] == bos) is (template_writes_it or model_wants_it)


async def test_the_event_loop_turns_while_a_long_text_is_tokenized(monkeypatch: pytest.MonkeyPatch) -> None:
    """BB-060: /health does not answer while a prompt is tokenized, for Python's lock is held all along."""
    turns, turns_within = 0, 0
    encode = ByteLevelBpe.encode

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    def counting(self: ByteLevelBpe, text: str, **where: bool) -> list[int]:
        nonlocal turns_within
        before = turns
        ids = encode(self, text, **where)
        turns_within += turns - before
        return ids

    monkeypatch.setattr(ByteLevelBpe, "encode", counting)
    # Threads change places often: what turns within a call is then no leftover of the changes at its ends.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        async with http_client(scripted_model()) as client:
            turning = asyncio.create_task(turn())
            answer = await client.post("/tokenize", json={"content": "some words, " * 10_000})
            turning.cancel()
    finally:
        sys.setswitchinterval(interval)
    assert answer.json()["count"] == 120_000
    assert turns_within > 1000
