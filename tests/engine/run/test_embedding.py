"""From hidden states to one vector of unit length, and the embeddings of several texts through the service."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from engine.api.config import EngineConfig
from engine.api.prompt import Prompt
from engine.api.request import Pooling
from engine.errors import EngineFaultError, EngineNotReadyError, InputLengthError, QueueFullError, RequestError
from engine.run.embedding import Pooler, pooling_of, unit_length
from engine.run.runner_protocol import ModelRunner, SequenceRows
from engine.service import EngineService
from engine.weights.files.gguf import GgufFile
from tests.engine.runners import loaded, random_tokens
from tests.engine.scripted import VOCAB_SIZE, ScriptedRunner, a_request, hidden_state, letter_tokenizer
from tests.reference.llama import ReferenceLlama
from tests.tiny.models import write_out, write_tiny_llama


@asynccontextmanager
async def serving(
    runner: ModelRunner, *, pooling: Pooling | None = Pooling.LAST, **config: Any
) -> AsyncIterator[EngineService]:
    service = EngineService(runner, letter_tokenizer(), EngineConfig(**config), pooling)
    service.start()
    try:
        yield service
    finally:
        await service.stop(drain_seconds=0)


async def until_idle(service: EngineService) -> None:
    async with asyncio.timeout(30):
        while service.running or service.waiting:
            await asyncio.sleep(0.001)


def refuse_logits(known: tuple[int, ...]) -> NDArray[np.float32]:
    raise AssertionError("an embedding needs no logits")


class Gate:
    """Holds the runner before each step until opened."""

    def __init__(self, runner: ScriptedRunner) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()
        runner.before_run = self._wait

    def _wait(self, batch: Sequence[SequenceRows]) -> None:
        self.reached.set()
        assert self.open.wait(timeout=10)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("model") / "tiny.gguf", seed=5, context=200)


def reference(model: Path, tokens: list[int], pooling: Pooling) -> NDArray[np.float64]:
    states = ReferenceLlama(model).final(tokens)
    vector = {Pooling.MEAN: states.mean(axis=0), Pooling.CLS: states[0], Pooling.LAST: states[-1]}[pooling]
    result: NDArray[np.float64] = vector / np.linalg.norm(vector)
    return result


@pytest.mark.parametrize("pooling", Pooling)
async def test_vectors_are_those_of_the_reference(model: Path, pooling: Pooling) -> None:
    with loaded(model, rows=64, kv_type="f32", activations="f32") as runner:
        texts = [Prompt(tuple(random_tokens(runner, count, seed=count))) for count in (1, 20, 150)]
        async with serving(runner, pooling=pooling) as service:
            vectors = await service.embed("e", texts).vectors()
    for text, vector in zip(texts, vectors, strict=True):
        assert np.abs(vector - reference(model, list(text), pooling)).max() < 1e-5


@pytest.mark.parametrize("pooling", Pooling)
async def test_company_and_chunks_change_no_bit(model: Path, pooling: Pooling) -> None:
    with loaded(model, rows=64) as runner:
        texts = [Prompt(tuple(random_tokens(runner, 30 + 17 * index, seed=index))) for index in range(8)]
        async with serving(runner, pooling=pooling) as service:
            alone = [(await service.embed("e", [text]).vectors())[0] for text in texts]
    for rows in (7, 64):
        with loaded(model, rows=64) as runner:
            async with serving(runner, pooling=pooling, prefill_rows=rows, lanes=8) as service:
                (answer,) = service.submit(a_request(texts[0][:20], max_tokens=60, ignore_eos=True))
                together = await service.embed("e", texts).vectors()
                answer.abort()
        assert [vector.tobytes() for vector in together] == [vector.tobytes() for vector in alone]


async def test_many_texts_come_in_order_and_no_logits_are_computed_for_them() -> None:
    runner = ScriptedRunner()
    runner.logits_of = refuse_logits
    texts = [Prompt(tuple(1 + (place * step) % 31 for step in range(1, 2 + place % 9))) for place in range(100)]
    async with serving(runner, lanes=3) as service:
        vectors = await service.embed("e", texts).vectors()
        await until_idle(service)
        assert service.status().free_blocks == runner.groups[0].n_blocks
    for text, vector in zip(texts, vectors, strict=True):
        assert vector.tobytes() == unit_length(hidden_state(text.tokens)).tobytes()
    assert max(map(len, runner.batches)) == 3


async def test_a_text_may_fill_the_context_but_not_more() -> None:
    async with serving(ScriptedRunner(context_length=64)) as service:
        assert len(await service.embed("e", [Prompt((1,) * 64)]).vectors()) == 1
        with pytest.raises(InputLengthError, match=r"input\[1\] has 65 tokens.* 64;") as caught:
            service.embed("e", [Prompt((1,)), Prompt((1,) * 65)])
        assert (caught.value.param, caught.value.code) == ("input[1]", "context_length_exceeded")


async def test_ids_that_the_model_does_not_have_are_refused_by_place() -> None:
    async with serving(ScriptedRunner()) as service:
        with pytest.raises(RequestError) as caught:
            service.embed("e", [Prompt((1,)), Prompt((2, VOCAB_SIZE))])
        assert caught.value.param == "input[1]"


async def test_a_model_that_makes_none_says_so() -> None:
    async with serving(ScriptedRunner(), pooling=None) as service:
        with pytest.raises(RequestError, match="makes no embeddings"):
            service.embed("e", [Prompt((1,))])


async def test_texts_wait_in_the_queue_of_all_requests_and_do_not_fill_it() -> None:
    runner = ScriptedRunner()
    gate = Gate(runner)
    async with serving(runner, lanes=2, max_waiting=3) as service:
        embeddings = service.embed("e", [Prompt((1, 2))] * 50)
        (answer,) = service.submit(a_request(max_tokens=2))
        with pytest.raises(QueueFullError):
            service.embed("other", [Prompt((1,))])
        with pytest.raises(QueueFullError):
            service.submit(a_request())
        gate.open.set()
        assert [event async for event in answer]
        assert len(await embeddings.vectors()) == 50


async def test_a_full_queue_takes_as_many_texts_at_once_as_have_room() -> None:
    runner = ScriptedRunner()
    gate = Gate(runner)
    async with serving(runner, lanes=1, max_waiting=1) as service:
        (answer,) = service.submit(a_request(max_tokens=2))
        embeddings = service.embed("e", [Prompt((1, 2))] * 5)
        gate.open.set()
        assert len(await embeddings.vectors()) == 5
        assert [event async for event in answer]


async def test_leaving_early_frees_lanes_and_blocks() -> None:
    runner = ScriptedRunner()
    gate = Gate(runner)
    async with serving(runner, lanes=2) as service:
        embeddings = service.embed("e", [Prompt((1,) * 40)] * 20)
        await asyncio.to_thread(gate.reached.wait, 10)
        embeddings.abort()
        gate.open.set()
        await until_idle(service)
        assert service.status().free_blocks == runner.groups[0].n_blocks
        assert len(runner.batches) == 1


async def test_a_fault_ends_one_call_and_no_other() -> None:
    runner = ScriptedRunner()

    def fail_on_nine(batch: Sequence[SequenceRows]) -> None:
        if any(9 in rows.tokens for rows in batch):
            raise RuntimeError("nine")

    runner.before_run = fail_on_nine
    async with serving(runner) as service:
        bad, good = (
            service.embed("bad", [Prompt((1,)), Prompt((9,)), Prompt((2,))]),
            service.embed("good", [Prompt((3,)), Prompt((4,))]),
        )
        with pytest.raises(EngineFaultError):
            await bad.vectors()
        bad.abort()
        assert len(await good.vectors()) == 2
        await until_idle(service)
        assert service.status().free_blocks == runner.groups[0].n_blocks


async def test_states_that_are_no_numbers_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.engine.scripted.hidden_state", lambda known: np.full(4, np.nan, np.float32))
    async with serving(ScriptedRunner()) as service:
        with pytest.raises(EngineFaultError, match="not numbers"):
            await service.embed("e", [Prompt((1,))]).vectors()


@pytest.mark.parametrize("lanes", [1, 4])
async def test_draining_completes_all_texts_of_an_accepted_call(lanes: int) -> None:
    runner = ScriptedRunner()
    async with serving(runner, lanes=lanes, max_waiting=0) as service:
        embeddings = service.embed("e", [Prompt((1, 2))] * 30)
        reading = asyncio.create_task(embeddings.vectors())
        await service.stop(drain_seconds=30)
        assert len(await reading) == 30
        with pytest.raises(EngineNotReadyError):
            service.embed("late", [Prompt((1,))])


async def test_the_end_of_the_drain_ends_what_is_left() -> None:
    runner = ScriptedRunner()
    gate = Gate(runner)
    async with serving(runner, lanes=1) as service:
        embeddings = service.embed("e", [Prompt((1, 2))] * 30)
        await asyncio.to_thread(gate.reached.wait, 10)
        stopping = asyncio.create_task(service.stop(drain_seconds=0))
        await asyncio.sleep(0.01)
        gate.open.set()
        await stopping
        with pytest.raises(EngineNotReadyError):
            await embeddings.vectors()


STATES = np.random.default_rng(1).normal(0, 3, (50, 32)).astype(np.float32)


def pooled(pooling: Pooling, chunk: int) -> np.ndarray:
    pooler = Pooler(pooling, len(STATES))
    for start in range(0, len(STATES), chunk):
        rows = STATES[start : start + chunk]
        pooler.push(rows[list(pooler.wanted(start, len(rows)))])
    return pooler.vector()


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [(Pooling.MEAN, STATES.astype(np.float64).mean(axis=0)), (Pooling.CLS, STATES[0]), (Pooling.LAST, STATES[-1])],
)
def test_the_vector_is_the_state_that_the_model_names_at_unit_length(pooling: Pooling, expected: np.ndarray) -> None:
    vector = pooled(pooling, chunk=50)
    assert vector.dtype == np.float32
    assert np.abs(vector - expected / np.linalg.norm(expected)).max() < 1e-7


@pytest.mark.parametrize("pooling", Pooling)
@pytest.mark.parametrize("chunk", [1, 7, 49])
def test_chunks_change_no_bit(pooling: Pooling, chunk: int) -> None:
    assert pooled(pooling, chunk).tobytes() == pooled(pooling, 50).tobytes()


def test_only_the_states_that_count_are_asked_for() -> None:
    assert [len(Pooler(Pooling.CLS, 9).wanted(position, 3)) for position in (0, 3, 6)] == [1, 0, 0]
    assert [Pooler(Pooling.LAST, 9).wanted(position, 3) for position in (0, 3, 6)] == [range(0), range(0), range(2, 3)]


def test_zeros_stay_zeros_and_what_is_no_number_is_a_fault() -> None:
    assert unit_length(np.zeros(8, np.float32)).tolist() == [0.0] * 8
    for value in (np.nan, np.inf):
        with pytest.raises(EngineFaultError, match="not numbers"):
            unit_length(np.array([1, value], np.float32))


@pytest.mark.parametrize(
    ("number", "expected"),
    [(None, Pooling.LAST), (0, Pooling.LAST), (1, Pooling.MEAN), (2, Pooling.CLS), (3, Pooling.LAST), (4, None)],
)
def test_the_file_says_how_its_model_pools(tmp_path: Path, number: int | None, expected: Pooling | None) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    if number is not None:
        writer.add_uint32("llama.pooling_type", number)
    writer.add_tensor("x", np.zeros(32, np.float32))
    write_out(writer)
    with GgufFile.open(tmp_path / "m.gguf") as file:
        assert pooling_of(file) is expected
