"""qwen35moe against transformers: logits, the stream after each layer, recurrent states and drafts, in float32."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.loading.runner import Runner
from engine.run.runner_protocol import SequenceRows
from tests.engine.runners import GOLDEN, blocks_for, feed, loaded
from tests.reference.qwen35 import ReferenceQwen35
from tests.tiny.qwen35 import write_tiny_qwen35

FOLDER = GOLDEN / "qwen3_5_moe"
LAYERS = 8
Arrays = dict[str, NDArray[np.float32]]


@pytest.fixture(scope="module")
def golden() -> Arrays:
    with np.load(FOLDER / "logits.npz") as arrays:
        return {name: arrays[name] for name in arrays.files}


@pytest.fixture(scope="module")
def ids(golden: Arrays) -> list[int]:
    return [int(token) for token in golden["ids"]]


@pytest.fixture(scope="module")
def table(ids: list[int]) -> list[int]:
    return list(range(blocks_for(len(ids))))


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with loaded(FOLDER / "model.gguf", activations="f32", kv_type="f32") as runner:
        yield runner


def check(found: NDArray[np.floating], expected: NDArray[np.floating]) -> None:
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("chunk", [512, 64, 7])
def test_a_whole_prefill_gives_the_golden_logits(
    runner: Runner, golden: Arrays, ids: list[int], table: list[int], chunk: int
) -> None:
    logits = feed(runner, ids, table, chunk)
    check(logits, golden["logits_full"])
    assert np.array_equal(logits.argmax(axis=1), golden["logits_full"].argmax(axis=1))


def test_a_prefill_then_single_tokens_give_the_golden_logits(
    runner: Runner, golden: Arrays, ids: list[int], table: list[int]
) -> None:
    n_prefill = int(golden["n_prefill"])
    first = feed(runner, ids[:n_prefill], table, chunk=512)[-1:]
    rest = feed(runner, ids[n_prefill:], table, chunk=1, start=n_prefill)
    check(np.concatenate([first, rest]), golden["logits_decode"])


def test_every_layer_leaves_the_golden_stream(runner: Runner, golden: Arrays, ids: list[int], table: list[int]) -> None:
    rows = SequenceRows(ids, 0, (table,), 1, final_rows=range(len(ids)))
    streams, _ = runner.trace([rows])
    for layer in range(LAYERS):
        first, last = golden["hidden_layers_first24"][layer], golden["hidden_layers_last"][layer]
        largest = np.abs(np.concatenate([streams[layer + 1, :24] - first, streams[layer + 1, -1:] - last])).max()
        print(f"layer {layer}: error {largest:.1e} of {np.abs(first).max():.1e}")
        assert largest < 1e-4 * np.abs(first).max()
    check(runner.final, golden["final_norm"])


def test_a_prefill_leaves_the_golden_states(runner: Runner, golden: Arrays, ids: list[int], table: list[int]) -> None:
    feed(runner, ids[: int(golden["n_prefill"])], table, chunk=64)
    slot = np.frombuffer(runner.read_state(0), np.float32)
    matrices, channels = golden["rec_state_layer0_after_prefill"], golden["conv_state_layer0_after_prefill"]
    # transformers has V heads by their K head; GGUF the first of each K head, then the second.
    by_key_head = matrices.reshape(2, 2, 16, 16).swapaxes(0, 1).reshape(4, 16, 16)
    check(slot[: matrices.size].reshape(matrices.shape), by_key_head)
    value = channels[64:, 1:].reshape(2, 2, 16, 3).swapaxes(0, 1).reshape(64, 3)
    history = slot[matrices.size : matrices.size + 3 * len(channels)].reshape(3, len(channels))
    check(history, np.concatenate([channels[:64, 1:], value]).T)


@pytest.mark.parametrize("chunk", [512, 1])
def test_drafts_have_the_golden_logits(
    runner: Runner, golden: Arrays, ids: list[int], table: list[int], chunk: int
) -> None:
    draft = runner.draft
    assert draft is not None
    runner.run([SequenceRows(ids, 0, (table,), 1, final_rows=range(len(ids)))])
    states, logits, finals = runner.final.copy(), [], []
    for at in range(0, len(ids) - 1, chunk):
        tokens = ids[at + 1 : at + 1 + chunk]
        rows = SequenceRows(tokens, at, (table,), len(tokens), final_rows=range(len(tokens)))
        logits.append(draft.run([rows], states[at : at + len(tokens)]).copy())
        finals.append(draft.final.copy())
    check(np.concatenate(logits), golden["mtp_logits"])
    check(np.concatenate(finals), golden["mtp_norm_hidden"])


def test_the_float64_reading_of_the_formulas_gives_the_golden_logits(golden: Arrays, ids: list[int]) -> None:
    reference = ReferenceQwen35(FOLDER / "model.gguf")
    assert np.abs(reference.logits(ids) - golden["logits_full"]).max() < 2e-5 * np.abs(golden["logits_full"]).max()
    assert np.abs(reference.draft(ids) - golden["mtp_logits"]).max() < 2e-5 * np.abs(golden["mtp_logits"]).max()


TINY = {
    "dense": {"experts": 0, "types": "Q8_0"},
    "a V head for each K head": {"key_heads": 3, "value_heads": 3, "state": 32, "types": "Q5_0", "draft": False},
    "three V heads for each K head": {"key_heads": 1, "value_heads": 3, "hidden": 96, "width": 64},
}


@pytest.fixture(params=TINY)
def tiny(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_tiny_qwen35(tmp_path / "tiny.gguf", seed=3, **TINY[request.param])  # type: ignore[arg-type]


def test_float_activations_agree_with_the_float64_reading(tiny: Path) -> None:
    tokens, reference = np.random.default_rng(0).integers(0, 288, 70).tolist(), ReferenceQwen35(tiny)
    with loaded(tiny, activations="f32", kv_type="f32") as runner:
        rows = SequenceRows(tokens, 0, ((0, 1),), len(tokens), final_rows=range(len(tokens)))
        check(runner.run([rows]), reference.logits(tokens))
        if runner.draft is not None:
            states = runner.final[:-1].copy()
            check(
                runner.draft.run([SequenceRows(tokens[1:], 0, ((0, 1),), len(tokens[1:]))], states),
                reference.draft(tokens),
            )


@pytest.mark.parametrize("experts", [0, 6])
def test_int8_activations_move_the_distribution_a_little_only(tmp_path: Path, experts: int) -> None:
    # All experts are active: where two are nearly equal, rounding may choose the other, which moves a great deal.
    tiny = write_tiny_qwen35(tmp_path / "tiny.gguf", seed=4, types="Q8_0", experts=experts, active=experts)
    tokens = np.random.default_rng(1).integers(0, 288, 70).tolist()
    exact = log_softmax(ReferenceQwen35(tiny).logits(tokens))
    with loaded(tiny) as runner:
        found = log_softmax(feed(runner, tokens, [0, 1], chunk=512).astype(np.float64))
    divergence = (np.exp(exact) * (exact - found)).sum(axis=1)
    assert divergence.mean() < 5e-3 and divergence.max() < 5e-2


def log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted: NDArray[np.float64] = logits - logits.max(axis=1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result
