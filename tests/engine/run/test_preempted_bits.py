"""A real model whose memory holds a quarter of what runs: all requests end, with the logit bits of each alone."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from engine.api.config import EngineConfig
from engine.api.prompt import Prompt
from engine.api.request import FinishEvent, FinishReason, Request
from engine.api.sampling import Sampling
from engine.loading.runner import Runner
from engine.memory.memory import Memory
from engine.run.event_stream import EventStream
from engine.run.outputs import RequestOutput
from engine.run.sequence import TokenSequence
from engine.run.status import StepReport
from engine.sampling.token_chooser import TokenChooser
from engine.scheduling.loop import Delivery, EngineLoop, Job
from engine.scheduling.scheduler import Scheduler
from tests.engine.run.logit_keeper import LogitKeeper
from tests.engine.runners import loaded
from tests.engine.scripted import letter_tokenizer
from tests.tiny.models import write_tiny_llama

REQUESTS = 16
CONTEXT = 256


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("model") / "tiny.gguf", types="Q4_1", context=CONTEXT)


def served(runner: Runner, requests: list[Request]) -> tuple[list[list[bytes]], list[FinishEvent]]:
    """Serve all requests at once; the logits of each, and how it ended."""
    ends: dict[EventStream, FinishEvent] = {}

    def publish(batch: list[Delivery], report: StepReport | None) -> None:
        ends.update({stream: item for stream, item in batch if isinstance(item, FinishEvent)})

    memory = Memory(runner, REQUESTS)
    scheduler = Scheduler(EngineConfig(lanes=REQUESTS, prefill_rows=48), memory, runner)
    keeper = LogitKeeper(runner.vocab_size)
    loop = EngineLoop(runner, scheduler, keeper, publish)
    jobs = []
    for request in requests:
        sequence = TokenSequence(request, request.max_tokens or 0, TokenChooser(request))
        output = RequestOutput(request, letter_tokenizer(), sequence.max_new_tokens)
        jobs.append(Job(sequence, output, EventStream(lambda: None)))
        loop.submit(jobs[-1])
    while len(ends) < len(jobs):
        loop._take_commands()
        loop.step()
    assert memory.free_blocks == memory.blocks
    return [keeper.seen[job.sequence.chooser] for job in jobs], [ends[job.stream] for job in jobs]


def random_request(rng: random.Random, number: int) -> Request:
    prompt = tuple(rng.randrange(288) for _ in range(rng.randint(20, 140)))
    return Request(
        id=f"r{number}",
        prompt=Prompt(prompt),
        max_tokens=rng.randint(40, 100),
        ignore_eos=True,
        sampling=Sampling(temperature=1.0, seed=number, allowed_tokens=tuple(range(1, 27))),
    )


def test_a_pool_for_four_serves_sixteen_with_the_bits_of_each_alone(model: Path) -> None:
    rng = random.Random(7)
    requests = [random_request(rng, number) for number in range(REQUESTS)]
    with loaded(model, rows=64, lanes=REQUESTS) as runner:
        expected = [served(runner, [request])[0][0] for request in requests]
        blocks_of_four = 4 * CONTEXT // runner.block_tokens
        runner.groups = (replace(runner.groups[0], n_blocks=blocks_of_four),)
        logits, finishes = served(runner, requests)
    assert logits == expected
    assert all(finish.reason is FinishReason.LENGTH for finish in finishes)
    assert [finish.completion_tokens for finish in finishes] == [request.max_tokens for request in requests]
    assert sum(finish.preemptions for finish in finishes) > 0
