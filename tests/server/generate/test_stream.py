"""The byte sequence of a stream."""

import asyncio
import re

import httpx
import orjson

from engine.errors import EngineFaultError
from server.settings import ServingOptions
from tests.server.harness import CHAT, http_client, live_server
from tests.server.scripted.engine import ScriptedModel, Step, scripted_model


async def streamed(model: ScriptedModel, **fields: object) -> httpx.Response:
    async with http_client(model) as client:
        return await client.post("/v1/chat/completions", json={**CHAT, "stream": True, **fields})


def frames(body: str) -> list[str]:
    assert body.endswith("\n\n")
    return body.removesuffix("\n\n").split("\n\n")


def chunks(body: str) -> list[dict[str, object]]:
    return [orjson.loads(frame.removeprefix("data: ")) for frame in frames(body) if frame.startswith("data: {")]


async def test_the_headers_are_those_of_an_uncached_event_stream() -> None:
    headers = (await streamed(scripted_model("x"))).headers
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in headers


async def test_the_exact_sequence_without_usage() -> None:
    body = (await streamed(scripted_model("Hé", "", "!"))).text
    first, *data, done = frames(body)
    assert (first, done) == (": ping", "data: [DONE]")
    constant = r'data: \{"id":"chatcmpl-[0-9a-f]{32}","object":"chat.completion.chunk","created":\d+,'
    constant += r'"model":"scripted","system_fingerprint":"fp_scripted","choices":'
    rests = [re.sub("^" + constant, "", frame) for frame in data]
    assert rests[:3] == [
        '[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}',
        '[{"index":0,"delta":{"content":"Hé"},"logprobs":null,"finish_reason":null}]}',
        '[{"index":0,"delta":{"content":"!"},"logprobs":null,"finish_reason":null}]}',
    ]
    assert rests[3].startswith(
        '[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"timings":{"queue_ms":1.0,'
    )
    assert len(rests) == 4


async def test_usage_comes_once_at_the_end_and_is_null_before() -> None:
    found = chunks((await streamed(scripted_model("a", "b"), stream_options={"include_usage": True})).text)
    assert [chunk["usage"] for chunk in found[:-1]] == [None] * 4
    assert found[-1]["choices"] == []
    assert found[-1]["usage"] == {
        "prompt_tokens": 20,
        "completion_tokens": 2,
        "total_tokens": 22,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
    assert "timings" in found[-1] and "timings" not in found[-2]


async def test_no_usage_and_no_empty_choices_unless_asked() -> None:
    found = chunks((await streamed(scripted_model("a"))).text)
    assert all("usage" not in chunk and chunk["choices"] for chunk in found)


async def test_an_answer_without_text_still_has_its_role_and_finish() -> None:
    found = chunks((await streamed(scripted_model())).text)
    assert [chunk["choices"][0]["delta"] for chunk in found] == [{"role": "assistant", "content": ""}, {}]  # type: ignore[index]


async def test_an_error_in_mid_stream_is_data_and_then_done() -> None:
    body = (await streamed(scripted_model("a", EngineFaultError("It broke.")))).text
    error, done = frames(body)[-2:]
    assert done == "data: [DONE]"
    assert orjson.loads(error.removeprefix("data: ")) == {
        "error": {"message": "It broke.", "type": "server_error", "param": None, "code": "internal_error"}
    }


async def test_a_bug_of_ours_in_mid_stream_does_not_show_its_insides() -> None:
    body = (await streamed(scripted_model("a", ZeroDivisionError("secret")))).text
    assert "secret" not in body and '"type":"server_error"' in body
    assert frames(body)[-1] == "data: [DONE]"


def test_the_first_byte_comes_at_admission_and_comments_follow_while_silent() -> None:
    gate = asyncio.Event()
    options = ServingOptions(ping_seconds=0.02, drain_seconds=0)
    request = {**CHAT, "stream": True}
    with (
        live_server(scripted_model(gate, "late"), options) as server,
        httpx.stream("POST", f"{server.url}/v1/chat/completions", json=request) as answer,
    ):
        lines = answer.iter_lines()
        silence = [next(lines) for _ in range(6)]
        server.loop.call_soon_threadsafe(gate.set)
        rest = [line for line in lines if line.startswith("data: ")]
    assert silence == [": ping", ""] * 3
    assert '"content":"late"' in rest[1] and rest[-1] == "data: [DONE]"


def test_no_comments_after_the_first_when_switched_off() -> None:
    steps: tuple[Step, ...] = ("a", 0.1, "b")
    with live_server(scripted_model(*steps), ServingOptions(ping_seconds=0, drain_seconds=0)) as server:
        body = httpx.post(f"{server.url}/v1/chat/completions", json={**CHAT, "stream": True}).text
    assert body.count(": ping") == 1


async def test_timings_use_the_names_that_clients_read() -> None:
    async with http_client(scripted_model("a", "b", "c")) as client:
        timings = (await client.post("/v1/chat/completions", json=CHAT)).json()["timings"]
    assert timings == {
        "queue_ms": 1.0,
        "cache_n": 0,
        "prompt_n": 20,
        "prompt_ms": 500.0,
        "prompt_per_second": 40.0,
        "predicted_n": 3,
        "predicted_ms": 250.0,
        "predicted_per_second": 8.0,  # the first of the three tokens belongs to the prefill
        "draft_n": 0,
        "draft_n_accepted": 0,
        "lanes": 1.0,
        "bytes_per_step": 90_000_000,
    }
