"""qwen35's promises: a sequence's bits whoever shares the step, and states that can be copied, kept and rewound."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.loading.runner import Runner
from engine.run.runner_protocol import SequenceRows
from kernels.simd.tiers import supported_tiers
from tests.engine.runners import blocks_for, feed, loaded, random_tokens, same_bits
from tests.tiny.models import write_tiny_llama
from tests.tiny.qwen35 import write_tiny_qwen35

Float32 = NDArray[np.float32]
TOKENS = 150
MIXED = {"attn_qkv": "Q8_0", "attn_gate": "Q4_0", "ssm_out": "Q8_0", "ssm_alpha": "Q8_0", "ffn_down_exps": "Q5_0"}
K_QUANTS = {
    "attn_qkv": "Q8_0",
    "attn_q": "Q5_K",
    "ssm_out": "Q6_K",
    "ffn_gate_exps": "Q4_K",
    "ffn_up_exps": "Q4_K",
    "ffn_down_exps": "Q6_K",
    "output": "Q6_K",
}
MODELS = {
    "experts": {"types": MIXED},
    "dense": {"types": "Q4_1", "experts": 0, "key_heads": 3, "value_heads": 3, "state": 32},
    "k-quants": {"types": K_QUANTS, "hidden": 256, "state": 64, "head_dim": 64, "width": 256, "experts": 4},
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return write_tiny_qwen35(path, seed=5, **MODELS[request.param])  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tokens(runner: Runner) -> list[int]:
    return random_tokens(runner, TOKENS, seed=1)


@pytest.fixture(scope="module")
def state(runner: Runner, tokens: list[int], expected: Float32) -> bytes:
    """The recurrent state after all tokens."""
    feed(runner, tokens, range(blocks_for(TOKENS)), chunk=512)
    return runner.read_state(0)


def step(tokens: list[int], position: int, slot: int, *, keep: bool = False) -> SequenceRows:
    """Rows of the sequence whose blocks follow from its slot."""
    blocks = range(slot * 4, slot * 4 + 4)
    return SequenceRows(tokens, position, (blocks,), len(tokens), state_slot=slot, keep_states=keep)


@pytest.mark.parametrize(("threads", "chunk"), [(1, 512), (2, 7), (3, 64)])
@pytest.mark.parametrize("tier", supported_tiers())
def test_tiers_threads_and_chunks_change_no_bit(
    model: Path, tokens: list[int], expected: Float32, state: bytes, tier: str, threads: int, chunk: int
) -> None:
    with loaded(model, isa=tier, threads=threads, rows=chunk) as other:
        assert same_bits(feed(other, tokens, range(blocks_for(TOKENS)), chunk), expected)
        assert other.read_state(0) == state


def test_the_other_sequences_of_a_step_change_no_bit(runner: Runner, tokens: list[int], expected: Float32) -> None:
    random = np.random.default_rng(3)
    prompts = [tokens, *(random_tokens(runner, int(random.integers(3, 200)), seed=10 + slot) for slot in range(6))]
    done, mine = [0] * len(prompts), []
    while done[0] < TOKENS:
        batch = []
        for slot in random.permutation(len(prompts)).tolist():
            piece = prompts[slot][done[slot] : done[slot] + int(random.choice([0, 1, 1, 5, 20]))]
            if piece:
                batch.append(step(piece, done[slot], slot))
                done[slot] += len(piece)
        if batch:
            ends = np.cumsum([len(rows.tokens) for rows in batch])[:-1]
            parts = np.split(runner.run(batch).copy(), ends)
            mine += [part for rows, part in zip(batch, parts, strict=True) if rows.state_slot == 0]
    assert same_bits(np.concatenate(mine), expected)


def test_a_copied_state_goes_on_with_the_same_bits(runner: Runner, tokens: list[int], expected: Float32) -> None:
    runner.run([step(tokens[:100], 0, 1)])
    runner.copy_state(1, 12)
    runner.run([step(random_tokens(runner, 20, seed=7), 100, 1)])
    runner.copy_state(12, 1)
    assert same_bits(runner.run([step(tokens[100:], 100, 1)]), expected[100:])


def test_a_state_that_was_read_can_be_written_to_any_slot(runner: Runner, tokens: list[int], expected: Float32) -> None:
    runner.run([step(tokens[:100], 0, 1)])
    data = runner.read_state(1)
    assert len(data) == runner.state_bytes
    blocks = [runner.read_block(0, block) for block in range(4, 8)]
    for block, content in enumerate(blocks, 8):
        runner.write_block(0, block, content)
    runner.write_state(2, data)
    assert same_bits(runner.run([step(tokens[100:], 100, 2)]), expected[100:])


def test_rows_that_begin_a_sequence_see_nothing_of_the_slot(
    runner: Runner, tokens: list[int], expected: Float32
) -> None:
    runner.write_state(1, b"\xff" * runner.state_bytes)
    assert same_bits(runner.run([step(tokens, 0, 1)]), expected)


@pytest.mark.parametrize("start", [0, 2, 70])
def test_rejected_drafts_change_no_bit(
    runner: Runner, tokens: list[int], expected: Float32, state: bytes, start: int
) -> None:
    random, done = np.random.default_rng(start), start
    if start:
        runner.run([step(tokens[:start], 0, 1)])
    while done < TOKENS:
        right = int(random.integers(1, 6))
        drafted = [*tokens[done : done + right], *random_tokens(runner, 8, seed=done)][:8]
        logits = runner.run([step(drafted, done, 1, keep=True), step(tokens[:3], 0, 3)])[:right]
        right = min(right, TOKENS - done)
        assert same_bits(logits[:right], expected[done : done + right])
        runner.rewind(1, 8)
        runner.rewind(1, right)
        done += right
    assert runner.read_state(1) == state


def test_a_copy_after_a_rewind_has_the_state_that_was_put_back(
    runner: Runner, tokens: list[int], expected: Float32
) -> None:
    runner.run([step(tokens[:90], 0, 1)])
    runner.run([step([*tokens[90:93], 1, 2], 90, 1, keep=True)])
    runner.rewind(1, 3)
    runner.copy_state(1, 12)
    assert same_bits(runner.run([step(tokens[93:120], 93, 1)]), expected[93:120])
    runner.copy_state(12, 1)
    assert same_bits(runner.run([step(tokens[93:], 93, 1)]), expected[93:])


def test_drafts_have_the_same_bits_however_they_come(model: Path, runner: Runner, tokens: list[int]) -> None:
    whole = drafts(runner, tokens, TOKENS)
    assert same_bits(drafts(runner, tokens, 1), whole)
    with loaded(model, threads=3) as other:
        assert same_bits(drafts(other, tokens, 7), whole)


def drafts(runner: Runner, tokens: list[int], chunk: int) -> Float32:
    """The draft's logits after each token but the last."""
    draft, table, logits = runner.draft, range(blocks_for(TOKENS)), []
    assert draft is not None
    for at in range(0, TOKENS - 1, chunk):
        after = tokens[at + 1 : at + 1 + chunk]
        rows = tokens[at : at + len(after)]
        runner.run([SequenceRows(rows, at, (table,), 0, final_rows=range(len(rows)))])
        states = runner.final.copy()
        logits.append(draft.run([SequenceRows(after, at, (table,), len(after))], states).copy())
    return np.concatenate(logits)


def test_a_model_without_recurrent_layers_has_no_states(tmp_path: Path) -> None:
    with loaded(write_tiny_llama(tmp_path / "tiny.gguf")) as runner:
        assert (runner.state_slots, runner.state_bytes, runner.draft) == (0, 0, None)
        runner.run([SequenceRows([1, 2], 0, ([0],), 1, keep_states=True)])
        runner.rewind(0, 1)
        with pytest.raises(IndexError, match="no recurrent state"):
            runner.copy_state(0, 1)
