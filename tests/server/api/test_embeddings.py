"""POST /v1/embeddings."""

import asyncio
import base64
import hashlib
from typing import Any

import httpx
import numpy as np
import pytest
from openai.types import CreateEmbeddingResponse

from engine.errors import EngineFaultError
from engine.run.embedding import unit_length
from server.api.embeddings.body import EmbeddingsBody
from server.api.embeddings.route import EMBEDDING_PARAMETERS
from server.fields.parameters import Handling
from server.settings import ServingOptions
from tests.server.harness import http_client, live_server, openai_client
from tests.server.scripted.embeddings import EMBEDDING_SIZE, scripted_vector
from tests.server.scripted.engine import ScriptedModel, scripted_model


async def post(served: ScriptedModel, options: ServingOptions | None = None, **body: Any) -> httpx.Response:
    async with http_client(served, options) as client:
        return await client.post("/v1/embeddings", json={"model": "scripted"} | body)


async def test_the_sdk_reads_the_answer_by_default_and_as_floats() -> None:
    async with openai_client(scripted_model()) as client:
        by_default = await client.embeddings.create(model="scripted", input=["a", "bc"])
        floats = await client.embeddings.create(model="scripted", input=["a", "bc"], encoding_format="float")
    for answer in (by_default, floats):
        CreateEmbeddingResponse.model_validate(answer.model_dump(), strict=True)
        assert [one.index for one in answer.data] == [0, 1]
        assert (answer.object, answer.model, answer.data[0].object) == ("list", "scripted", "embedding")
        assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (3, 3)
        for one, text in zip(answer.data, (b"a", b"bc"), strict=True):
            assert np.array(one.embedding, np.float32).tobytes() == scripted_vector(list(text)).tobytes()


@pytest.mark.parametrize(
    ("texts", "tokens"),
    [
        ("abc", [(97, 98, 99)]),
        (["abc", "d"], [(97, 98, 99), (100,)]),
        ([97, 98, 99], [(97, 98, 99)]),
        ([[97], [98, 99]], [(97,), (98, 99)]),
    ],
)
async def test_texts_are_taken_in_every_spelling(texts: Any, tokens: list[tuple[int, ...]]) -> None:
    model = scripted_model()
    answer = await post(model, input=texts)
    assert (answer.status_code, len(answer.json()["data"])) == (200, len(tokens))
    assert model.service.embedded == tokens


@pytest.mark.parametrize(
    ("texts", "param"),
    [
        (None, "input"),
        ("", "input"),
        ([], "input"),
        (["a", ""], "input[1]"),
        ([[]], "input[0]"),
        (["a", 1], "input[1]"),
        ([1, "a"], "input[1]"),
        ([[1], "a"], "input[1]"),
        ([-1], "input[0]"),
        ([[1, 2], [3, 99999]], "input[1][1]"),
        (5, "input"),
        ({"text": "a"}, "input"),
        (["a"] * 2049, "input"),
    ],
)
async def test_other_texts_are_refused_by_name(texts: Any, param: str) -> None:
    model = scripted_model()
    answer = await post(model, input=texts)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert not model.service.embedded


async def test_a_text_longer_than_the_context_is_named_with_both_numbers() -> None:
    model = ScriptedModel(context_length=10)
    assert (await post(model, input="a" * 10)).status_code == 200
    answer = await post(model, input=["a", "b" * 11])
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "input[1]")
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (11, 10)
    assert "input[1] has 11 tokens" in error["message"]


async def test_fewer_dimensions_are_the_first_ones_at_unit_length() -> None:
    answer = await post(scripted_model(), input="abc", dimensions=5)
    vector = np.array(answer.json()["data"][0]["embedding"], np.float32)
    assert vector.tobytes() == unit_length(scripted_vector(b"abc")[:5]).tobytes()
    assert abs(float(np.linalg.norm(vector)) - 1) < 1e-6
    whole = await post(scripted_model(), input="abc", dimensions=EMBEDDING_SIZE)
    assert np.array(whole.json()["data"][0]["embedding"], np.float32).tobytes() == scripted_vector(b"abc").tobytes()


@pytest.mark.parametrize("dimensions", [0, -1, EMBEDDING_SIZE + 1, 2**40, 1.5, "8", True])
async def test_other_dimensions_are_refused(dimensions: Any) -> None:
    answer = await post(scripted_model(), input="abc", dimensions=dimensions)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "dimensions")


@pytest.mark.parametrize("encoding", ["int8", "", "Float", 1])
async def test_other_encodings_are_refused(encoding: Any) -> None:
    answer = await post(scripted_model(), input="abc", encoding_format=encoding)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "encoding_format")


async def test_what_has_no_effect_is_listed_or_refused_when_strict() -> None:
    answer = await post(scripted_model(), input="a", user="me", wat=1)
    assert answer.headers["x-ignored-params"] == "user,wat" or answer.headers["x-ignored-params"] == "wat,user"
    strict = await post(scripted_model(), ServingOptions(strict_params=True), input="a", wat=1)
    assert (strict.status_code, strict.json()["error"]["param"]) == (400, "wat")
    truncating = await post(scripted_model(), input="a", truncate_prompt_tokens=3)
    assert (truncating.status_code, truncating.json()["error"]["code"]) == (400, "unsupported_parameter")


async def test_turn_salt_and_caller_reach_the_engine() -> None:
    model = scripted_model()
    options = ServingOptions(api_keys=("k",))
    async with http_client(model, options) as client:
        body = {"model": "scripted", "input": "a", "priority": -3, "cache_salt": "mine"}
        answer = await client.post("/v1/embeddings", json=body, headers={"X-Api-Key": "k"})
    assert (answer.status_code, "x-ignored-params" in answer.headers) == (200, False)
    assert model.service.embedding_terms == (-3, hashlib.sha256(b"k").digest(), "mine")


def test_the_table_and_the_body_name_the_same_parameters() -> None:
    honoured = {row.name for row in EMBEDDING_PARAMETERS.values() if row.handling is Handling.HONOURED}
    assert honoured == EmbeddingsBody.model_fields.keys()


async def test_the_path_without_v1_is_the_same() -> None:
    async with http_client(scripted_model()) as client:
        assert (await client.post("/embeddings", json={"model": "scripted", "input": "a"})).status_code == 200


async def test_an_unknown_model_is_not_answered_for() -> None:
    answer = await post(scripted_model(), model="text-embedding-3-small", input="a")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


async def test_a_full_queue_is_429() -> None:
    model = scripted_model()
    model.service.max_open = 0
    answer = await post(model, input="a")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")


async def test_a_fault_is_500_and_is_not_to_be_retried() -> None:
    model = scripted_model()
    model.service.embedding_fault = EngineFaultError("The server failed on this request.")
    answer = await post(model, input="a")
    assert (answer.status_code, answer.headers["x-should-retry"]) == (500, "false")
    assert answer.json()["error"]["type"] == "server_error"


async def test_embeddings_can_be_cancelled_by_the_id_of_their_request() -> None:
    model = scripted_model()
    model.service.embedding_gate = asyncio.Event()
    async with http_client(model) as client:
        body = {"model": "scripted", "input": "a"}
        work = asyncio.create_task(client.post("/v1/embeddings", json=body, headers={"X-Request-Id": "mine"}))
        while not model.service.embeddings:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (await client.post("/v1/requests/mine/cancel")).status_code == 200
        answer = await work
    assert (answer.status_code, answer.json()["error"]["code"]) == (499, "request_cancelled")


def test_a_client_that_leaves_ends_the_work() -> None:
    model = scripted_model()
    model.service.embedding_gate = asyncio.Event()
    with live_server(model) as server:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/v1/embeddings", json={"model": "scripted", "input": "a"}, timeout=3)
        for _ in range(500):
            if model.service.embeddings[0].was_aborted:
                break
            server.thread.join(timeout=0.01)
        assert model.service.embeddings[0].was_aborted


async def test_base64_holds_little_endian_floats() -> None:
    answer = await post(scripted_model(), input="abc", encoding_format="base64")
    raw = base64.b64decode(answer.json()["data"][0]["embedding"], validate=True)
    assert np.frombuffer(raw, "<f4").tolist() == scripted_vector(b"abc").tolist()
