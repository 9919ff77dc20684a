"""A hit changes no bit: after a cached prefix, real models give the logits that they give from the beginning."""

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.api.prompt import Prompt
from engine.api.request import Request
from engine.loading.runner import Runner
from engine.measure.plain_tables import plain_tables
from engine.memory.memory import Memory
from engine.run.runner_protocol import SequenceRows
from engine.run.sequence import TokenSequence
from engine.sampling.token_chooser import TokenChooser
from tests.engine.runners import GOLDEN, loaded, same_bits
from tests.tiny.models import write_tiny_llama
from tests.tiny.qwen35 import write_tiny_qwen35

Float32 = NDArray[np.float32]
LANES = 2
VOCABULARY = 256
CONTEXT = 448  # seven blocks of 64 tokens


@pytest.fixture(scope="module", params=["all positions", "windows", "recurrent"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    match request.param:
        case "windows":
            return GOLDEN / "gemma3" / "model.gguf"
        case "recurrent":
            return write_tiny_qwen35(folder / "tiny.gguf", experts=0, context=CONTEXT)
    return write_tiny_llama(folder / "tiny.gguf", types="Q4_1", context=CONTEXT)


@pytest.fixture(scope="module")
def runner(path: Path) -> Iterator[Runner]:
    with loaded(path, threads=2, rows=128, lanes=LANES) as runner:
        yield runner


@pytest.fixture(scope="module")
def cold(path: Path) -> Iterator[Runner]:
    """A second runner of the model, for what the logits have to be."""
    with loaded(path, threads=1, rows=128, lanes=1) as runner:
        yield runner


def started(memory: Memory, tokens: list[int]) -> TokenSequence:
    request = Request(id="r", prompt=Prompt(tuple(tokens)))
    sequence = TokenSequence(request, 1, TokenChooser(request))
    memory.attach(sequence)
    return sequence


def compute(runner: Runner, memory: Memory, sequence: TokenSequence, rows: int) -> Float32:
    """The logits of all rows that are still to be computed."""
    parts = []
    while sequence.pending:
        end = memory.chunk_end(sequence, min(sequence.computed + rows, len(sequence.tokens)))
        assert memory.grow(sequence, end)
        fed = sequence.tokens[sequence.computed : end]
        slot = sequence.held.state_slot
        batch = [SequenceRows(fed, sequence.computed, sequence.held.tables, len(fed), state_slot=slot)]
        parts.append(runner.run(batch).copy())
        memory.advance(sequence, len(fed))
    return np.concatenate(parts)


def conversation(rng: random.Random, known: list[list[int]]) -> list[int]:
    """A text that may begin as another did."""
    begin = rng.choice(known)[: rng.randrange(CONTEXT)] if known and rng.random() < 0.8 else []
    tokens = begin + [rng.randrange(VOCABULARY) for _ in range(rng.randrange(1, 150))]
    return tokens[:CONTEXT]


def expected(cold: Runner, tokens: list[int]) -> Float32:
    """The logits of all rows of a sequence that is alone and finds nothing."""
    tables = plain_tables(cold, len(tokens))
    steps = [(at, tokens[at : at + 128]) for at in range(0, len(tokens), 128)]
    return np.concatenate([cold.run([SequenceRows(fed, at, tables, len(fed))]).copy() for at, fed in steps])


def test_random_conversations_over_a_small_pool_have_cold_bits(runner: Runner, cold: Runner) -> None:
    memory, rng, known = Memory(runner, LANES), random.Random(5), list[list[int]]()
    for _ in range(70):
        tokens = conversation(rng, known)
        known = [*known[-5:], tokens]
        sequence = started(memory, tokens)
        first, rows = sequence.computed, rng.choice([1, 33, 64, 128]) if len(tokens) < 100 else 128
        aborted = rng.random() < 0.2
        if aborted:
            sequence.tokens = tokens[: first + max(1, (len(tokens) - first) // 2)]
        logits = compute(runner, memory, sequence, rows)
        assert same_bits(logits, expected(cold, sequence.tokens)[first:])
        memory.release(sequence)
    assert memory.hit_tokens > 2000 and memory.evicted_blocks > 20
    assert memory.free_blocks == memory.blocks


def test_a_block_read_by_two_at_once_is_the_same_for_both(runner: Runner, cold: Runner) -> None:
    memory, rng = Memory(runner, LANES), random.Random(6)
    shared = [rng.randrange(VOCABULARY) for _ in range(200)]
    first = started(memory, shared)
    compute(runner, memory, first, 128)
    second = started(memory, [*shared, 7, 8, 9])
    assert second.computed == 192
    logits = compute(runner, memory, second, 128)
    assert same_bits(logits, expected(cold, second.tokens)[192:])
    first.tokens += [5, 6]
    logits = compute(runner, memory, first, 1)
    assert same_bits(logits, expected(cold, first.tokens)[200:])


def test_bits_survive_a_restart(path: Path, cold: Runner, tmp_path: Path) -> None:
    rng = random.Random(7)
    texts = [[rng.randrange(VOCABULARY) for _ in range(count)] for count in (130, 300)]
    with loaded(path, rows=128, lanes=LANES) as runner:
        memory = Memory(runner, LANES, cache_folder=tmp_path, identity="tiny")
        for tokens in texts:
            sequence = started(memory, tokens)
            compute(runner, memory, sequence, 128)
            memory.release(sequence)
        memory.save()
    with loaded(path, rows=128, lanes=LANES) as runner:
        memory = Memory(runner, LANES, cache_folder=tmp_path, identity="tiny")
        memory.load()
        for tokens in texts:
            sequence = started(memory, [*tokens, 1, 2, 3])
            first = sequence.computed
            assert first == len(tokens) // 64 * 64
            assert same_bits(compute(runner, memory, sequence, 128), expected(cold, sequence.tokens)[first:])
            memory.release(sequence)
