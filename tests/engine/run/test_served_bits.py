"""Everything that a request hears from a real model is the same alone and among others: tokens, text and logprobs."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from engine.api.config import EngineConfig
from engine.api.prompt import Prompt
from engine.api.request import Event, FinishEvent, Request, Thinking, Timings
from engine.api.sampling import Sampling
from engine.run.event_stream import EventStream
from engine.service import EngineService
from engine.text.tokenizer import Tokenizer
from engine.weights.files.gguf import GgufFile
from tests.engine.runners import loaded
from tests.tiny.models import write_tiny_llama

NO_TIMINGS = Timings(queue_seconds=0, prefill_seconds=0, decode_seconds=0)
LANES = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("model") / "tiny.gguf", types="Q4_1", context=256)


@asynccontextmanager
async def serving(
    path: Path, *, logit_rows: int, prefill_rows: int, itl_target_ms: float | None = None, speculation: str = "auto"
) -> AsyncIterator[EngineService]:
    with GgufFile.open(path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    with loaded(path, threads=2, rows=logit_rows, lanes=LANES) as runner:
        config = EngineConfig(
            lanes=LANES, prefill_rows=prefill_rows, itl_target_ms=itl_target_ms, speculation=speculation
        )
        service = EngineService(runner, tokenizer, config)
        service.start()
        try:
            yield service
        finally:
            await service.stop(drain_seconds=0)


async def heard(stream: EventStream) -> list[object]:
    """Its tokens, one by one, and its end without the times."""
    events: list[Event] = [event async for event in stream]
    finish = events.pop()
    assert isinstance(finish, FinishEvent)
    tokens = [token for event in events for token in getattr(event, "tokens", ())]
    return [*tokens, replace(finish, timings=NO_TIMINGS)]


def random_request(rng: random.Random, vocabulary: int) -> Request:
    sampling = Sampling(
        temperature=rng.choice([0.0, 0.7, 1.5]),
        top_k=rng.choice([0, 20]),
        top_p=rng.choice([1.0, 0.9]),
        seed=rng.randrange(2**60),
        repetition_penalty=rng.choice([1.0, 1.3]),
        frequency_penalty=rng.choice([0.0, 0.5]),
        logit_bias=rng.choice([(), ((5, -100.0), (70, 2.0))]),
    )
    return Request(
        id="r",
        prompt=Prompt(tuple(rng.randrange(vocabulary) for _ in range(rng.randint(1, 60)))),
        max_tokens=rng.randint(1, 25),
        sampling=sampling,
        stop=("q",),
        logprobs=rng.choice([0, 5]),
        prompt_logprobs=rng.choice([None, 3]),
        thinking=rng.choice([None, Thinking(inside=True, start_id=None, end_ids=(40, 41), budget=4)]),
    )


async def test_a_request_hears_the_same_alone_and_among_others(model: Path) -> None:
    rng = random.Random(4)
    async with serving(model, logit_rows=64, prefill_rows=64, speculation="off") as service:
        requests = [random_request(rng, 288) for _ in range(24)]
        alone = [await heard(service.submit(request)[0]) for request in requests]
    async with serving(model, logit_rows=LANES, prefill_rows=7, itl_target_ms=1e-6) as service:
        together = await asyncio.gather(*map(heard, service.submit(*requests)))
    assert together == alone
    assert len({str(answer) for answer in alone}) == len(requests)
