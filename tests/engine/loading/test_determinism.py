"""The promise: a sequence's logits have the same bits whoever shares the step, and however the work is cut up."""

from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from engine.loading.runner import Runner
from engine.run.runner_protocol import NO_BLOCK, SequenceRows
from kernels.simd.tiers import supported_tiers
from tests.engine.runners import GOLDEN, blocks_for, feed, loaded, random_tokens, same_bits
from tests.tiny.families import write_tiny_family
from tests.tiny.models import write_tiny_llama

Float32 = NDArray[np.float32]
TOKENS = 200  # four blocks, the last one not full
TIERS = supported_tiers()

EVERY_TYPE = {
    "token_embd": "Q8_0",
    "attn_q": "Q4_1",
    "attn_k": "Q8_0",
    "attn_v": "Q5_0",
    "attn_output": "Q4_0",
    "ffn_gate": "Q5_1",
    "ffn_up": "Q4_1",
    "ffn_down": "Q5_0",
}
HALVES = {
    "token_embd": "F16",
    "output": "Q8_0",
    "attn_q": "BF16",
    "attn_output": "F16",
    "ffn_up": "Q4_0",
    "ffn_down": "BF16",
}
K_QUANTS = {
    "token_embd": "Q6_K",
    "attn_q": "Q2_K",
    "attn_k": "Q3_K",
    "attn_v": "Q6_K",
    "attn_output": "Q5_K",
    "ffn_gate": "Q4_K",
    "ffn_up": "Q3_K",
    "ffn_down": "Q5_K",
}
TABLES = {
    "token_embd": "IQ4_NL",
    "attn_q": "MXFP4",
    "attn_k": "IQ4_XS",
    "attn_v": "IQ4_NL",
    "attn_output": "IQ4_XS",
    "ffn_gate": "MXFP4",
    "ffn_up": "IQ4_NL",
    "ffn_down": "IQ4_XS",
}
WIDE = {"hidden": 256, "heads": 4, "kv_heads": 2, "ffn": 512}
TINY = {
    "a group of 3": {"hidden": 96, "heads": 6, "kv_heads": 2, "head_dim": 16, "types": EVERY_TYPE, "vocab": 277},
    "a group of 1": {"hidden": 64, "heads": 4, "kv_heads": 4, "types": HALVES, "tied": False, "rope_freqs": True},
    "a group of 2": {"hidden": 64, "heads": 4, "kv_heads": 2, "types": "Q4_1", "vocab": 301},
    "k-quants": {**WIDE, "types": K_QUANTS},
    "values by table": {**WIDE, "types": TABLES},
}
WINDOW = 40
FAMILIES = {
    "qwen2": {"types": EVERY_TYPE, "hidden": 96, "heads": 6, "kv_heads": 2, "head_dim": 16},
    "qwen3": {"types": "Q8_0", "heads": 2, "head_dim": 48, "kv_heads": 1, "tied": False},
    "gemma3": {"types": EVERY_TYPE, "layers": 4, "heads": 4, "kv_heads": 1, "head_dim": 32, "window": WINDOW},
}
MODELS = (*TINY, *FAMILIES, "llama_gqa", "llama_biases", "llama3_rope")


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    if request.param in TINY:
        write_tiny_llama(path, seed=11, **TINY[request.param])  # type: ignore[arg-type]
    elif request.param in FAMILIES:
        write_tiny_family(path, request.param, seed=11, **FAMILIES[request.param])  # type: ignore[arg-type]
    else:
        return GOLDEN / str(request.param) / "model.gguf"
    add_outliers(path)
    return path


def add_outliers(path: Path) -> None:
    """Let some channels of the norms stand out, as those of real models do: activations then have fine blocks too."""
    for tensor in gguf.GGUFReader(path, "r+").tensors:
        if tensor.name.endswith("norm.weight") and len(tensor.data) > 40:
            tensor.data[5], tensor.data[40] = 25, -12


@pytest.fixture(scope="module")
def tokens(runner: Runner) -> list[int]:
    return random_tokens(runner, TOKENS, seed=1)


@pytest.mark.parametrize("chunk", [1, 7, 64, 512])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("tier", TIERS)
def test_tiers_threads_and_chunks_change_no_bit(
    model: Path, tokens: list[int], expected: Float32, tier: str, threads: int, chunk: int
) -> None:
    with loaded(model, isa=tier, threads=threads, rows=chunk) as other:
        assert same_bits(feed(other, tokens, range(blocks_for(TOKENS)), chunk), expected)


@pytest.mark.parametrize("kv_type", ["f32", "q8_0"])
def test_other_types_of_keys_and_values_keep_their_bits_too(tmp_path: Path, kv_type: str) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf", seed=11, **TINY["a group of 3"])  # type: ignore[arg-type]
    with loaded(path, kv_type=kv_type) as runner:
        tokens = random_tokens(runner, TOKENS, seed=1)
        expected = feed(runner, tokens, range(blocks_for(TOKENS)), chunk=1)
        with loaded(path) as other:
            assert not same_bits(feed(other, tokens, range(blocks_for(TOKENS)), chunk=512), expected)
    for tier in TIERS:
        with loaded(path, isa=tier, threads=3, kv_type=kv_type) as other:
            assert same_bits(feed(other, tokens, range(blocks_for(TOKENS)), chunk=7), expected)
            random = np.random.default_rng(5)
            prompts = [tokens, random_tokens(other, 150, seed=2), random_tokens(other, 30, seed=3)]
            together = feed_together(other, prompts, shuffled_tables(other, prompts, random), random)
            assert same_bits(together[0], expected)


@pytest.mark.parametrize("sequences", range(1, 9))
def test_the_other_sequences_of_a_step_change_no_bit(runner: Runner, sequences: int) -> None:
    random = np.random.default_rng(sequences)
    prompts = [random_tokens(runner, int(random.integers(3, 200)), seed=100 + index) for index in range(sequences)]
    alone = [feed(runner, prompt, range(blocks_for(len(prompt))), chunk=512)[-4:] for prompt in prompts]
    together = feed_together(runner, prompts, shuffled_tables(runner, prompts, random), random)
    for mine, theirs in zip(alone, together, strict=True):
        assert same_bits(mine, theirs[-4:])


@pytest.mark.parametrize("tier", TIERS)
def test_two_threads_serve_eight_sequences_with_the_bits_of_one_alone(
    model: Path, runner: Runner, tokens: list[int], expected: Float32, tier: str
) -> None:
    random = np.random.default_rng(5)
    prompts = [tokens, *(random_tokens(runner, int(random.integers(3, 200)), seed=200 + index) for index in range(7))]
    with loaded(model, isa=tier, threads=2) as other:
        together = feed_together(other, prompts, shuffled_tables(other, prompts, random), random)
    assert same_bits(together[0], expected)


def test_only_the_logits_asked_for_are_given_with_the_same_bits(
    runner: Runner, tokens: list[int], expected: Float32
) -> None:
    tables = [list(range(8 * index, 8 * index + 4)) for index in range(5)]
    for table in tables:
        feed(runner, tokens[:100], table, chunk=512)
    groups = len(runner.groups)
    batch = [
        SequenceRows(tokens[100 : 101 + 3 * i], 100, (table,) * groups, int(i % 2 == 0))
        for i, table in enumerate(tables)
    ]
    assert same_bits(runner.run(batch), expected[[100, 106, 112]])


def test_where_blocks_lie_changes_no_bit(runner: Runner, tokens: list[int], expected: Float32) -> None:
    for table in ([40, 3, 17, 8], [3, 2, 1, 0]):
        assert same_bits(feed(runner, tokens, table, chunk=64), expected)


def test_what_a_block_held_before_changes_no_bit(runner: Runner, tokens: list[int], expected: Float32) -> None:
    table = [5, 4, 7, 6]
    feed(runner, random_tokens(runner, 256, seed=9), table, chunk=64)
    assert same_bits(feed(runner, tokens, table, chunk=7), expected)


@pytest.mark.parametrize("chunk", [1, 7, 512])
def test_positions_never_written_are_never_read(
    runner: Runner, tokens: list[int], expected: Float32, chunk: int
) -> None:
    spoil_blocks(runner)
    assert same_bits(feed(runner, tokens, [9, 30, 2, 11], chunk), expected)


def spoil_blocks(runner: Runner) -> None:
    """Fill all blocks with what is no number in any type."""
    for group in runner._state.attention.groups:
        for cache in group.caches:
            cache.keys[:], cache.values[:] = 0xFF, 0xFF


@pytest.mark.parametrize("chunk", [1, 7, 100])
@pytest.mark.parametrize("window", [1, 40, 64, 65])
def test_blocks_before_a_window_are_never_read_and_serve_others(tmp_path: Path, window: int, chunk: int) -> None:
    path = write_tiny_family(tmp_path / "tiny.gguf", "gemma3", types="Q8_0", layers=4, window=window, seed=11)
    with loaded(path, threads=2) as runner:
        tokens = random_tokens(runner, 300, seed=1)
        expected = feed(runner, tokens, range(blocks_for(300)), chunk=300)
        spoil_blocks(runner)
        assert [group.window for group in runner.groups] == [0, window]
        parts = []
        for start in range(0, 300, chunk):
            end = min(start + chunk, 300)
            first = max(0, start + 1 - window) // 64  # block that the first row sees
            in_turn = [NO_BLOCK if block < first else block % 4 for block in range(blocks_for(end))]
            rows = SequenceRows(tokens[start:end], start, (list(range(5)), in_turn), len(tokens[start:end]))
            parts.append(runner.run([rows]).copy())
        assert same_bits(np.concatenate(parts), expected)


def test_repeating_a_step_changes_no_bit(runner: Runner, tokens: list[int], expected: Float32) -> None:
    table = list(range(blocks_for(TOKENS)))
    feed(runner, tokens, table, chunk=512)
    for _ in range(20):
        assert same_bits(feed(runner, tokens[150:], table, chunk=50, start=150), expected[150:])


def shuffled_tables(runner: Runner, prompts: Sequence[list[int]], random: np.random.Generator) -> list[list[int]]:
    """Block tables out of all blocks of the runner, in random order."""
    free = random.permutation(runner.groups[0].n_blocks).tolist()
    return [[free.pop() for _ in range(blocks_for(len(prompt)))] for prompt in prompts]


def feed_together(
    runner: Runner, prompts: Sequence[list[int]], tables: Sequence[list[int]], random: np.random.Generator
) -> list[Float32]:
    """Feed all prompts at once: in each step some of them give one row, others a chunk, in random order."""
    done, parts = [0] * len(prompts), [[] for _ in prompts]  # type: list[int], list[list[Float32]]
    while any(count < len(prompt) for count, prompt in zip(done, prompts, strict=True)):
        chosen, batch = [], []
        for index in random.permutation(len(prompts)).tolist():
            size = int(random.choice([0, 1, 1, 1, 2, 7, 30]))
            piece = prompts[index][done[index] : done[index] + size]
            if piece:
                chosen.append((index, len(piece)))
                own_tables = (tables[index],) * len(runner.groups)
                batch.append(SequenceRows(piece, done[index], own_tables, len(piece)))
        if not batch:
            continue
        ends = np.cumsum([count for _, count in chosen])
        for (index, count), rows in zip(chosen, np.split(runner.run(batch).copy(), ends[:-1]), strict=True):
            parts[index].append(rows)
            done[index] += count
    return [np.concatenate(rows) for rows in parts]
