"""Logits against those of transformers: float32 within 1e-4 of the largest, and int8 within what rounding explains.

The errors of every layer are printed: see them with `pytest -rP tests/engine/families/test_golden.py`.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.loading.runner import Runner
from engine.run.runner_protocol import SequenceRows
from tests.engine.runners import GOLDEN, blocks_for, feed, loaded
from tests.reference.families import ReferenceFamily
from tests.reference.llama import ReferenceLlama
from tests.tiny.families import write_tiny_family
from tests.tiny.models import write_tiny_llama

LLAMAS = ("llama_gqa", "llama_mha", "llama3_rope", "llama_biases")
MODELS = (*LLAMAS, "llama_yarn", "qwen2", "qwen2_yarn", "qwen3", "qwen3_moe", "gemma3")


class Golden:
    """A golden model on a float32 runner, and what it must give."""

    def __init__(self, name: str, runner: Runner) -> None:
        with np.load(GOLDEN / name / "logits.npz") as arrays:
            self.ids: list[int] = arrays["ids"].tolist()
            self.full, self.decode = arrays["logits_full"], arrays["logits_decode"]
            self.n_prefill = int(arrays["n_prefill"])
            self.hidden = arrays["hidden"]  # before the first layer, after each, and after the last norm
        self.name = name
        self.runner, self.table = runner, list(range(blocks_for(len(self.ids))))

    def check(self, logits: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
        assert logits.shape == expected.shape
        assert np.abs(logits - expected).max() < 1e-4 * np.abs(expected).max()
        assert np.array_equal(logits.argmax(axis=1), expected.argmax(axis=1))


@pytest.fixture(scope="module", params=MODELS)
def golden(request: pytest.FixtureRequest) -> Iterator[Golden]:
    with loaded(GOLDEN / request.param / "model.gguf", activations="f32", kv_type="f32") as runner:
        yield Golden(request.param, runner)


@pytest.mark.parametrize("chunk", [512, 64, 7, 1])
def test_a_whole_prefill_gives_the_golden_logits(golden: Golden, chunk: int) -> None:
    golden.check(feed(golden.runner, golden.ids, golden.table, chunk), golden.full)


def test_the_likeliest_tokens_are_those_of_the_largest_logits(golden: Golden) -> None:
    tables = (golden.table,) * len(golden.runner.groups)
    logits = golden.runner.run([SequenceRows(golden.ids, 0, tables, len(golden.ids))])
    assert golden.runner.likeliest == logits.argmax(axis=1).tolist()


def test_every_layer_leaves_the_golden_hidden_states(golden: Golden) -> None:
    count, tables = len(golden.ids), (golden.table,) * len(golden.runner.groups)
    rows = SequenceRows(golden.ids, 0, tables, len(golden.ids), final_rows=range(count))
    streams, logits = golden.runner.trace([rows])
    golden.check(logits, golden.full)
    # The last of the golden states is the normalized one; the one before it was not kept.
    places = ["embeddings", *(f"after layer {layer}" for layer in range(len(streams) - 2)), "after the last norm"]
    found = dict(zip(places, [*streams[:-1], golden.runner.final], strict=True))
    errors = [
        np.abs(ours - theirs).max() / np.abs(theirs).max()
        for ours, theirs in zip(found.values(), golden.hidden, strict=True)
    ]
    for place, error in zip(found, errors, strict=True):
        print(f"{golden.name}, {place}: largest error {error:.1e} of the largest value")
    assert max(errors) < 1e-5


def test_a_prefill_then_single_tokens_give_the_golden_logits(golden: Golden) -> None:
    first = feed(golden.runner, golden.ids[: golden.n_prefill], golden.table, chunk=512)[-1:]
    rest = feed(golden.runner, golden.ids[golden.n_prefill :], golden.table, chunk=1, start=golden.n_prefill)
    golden.check(np.concatenate([first, rest]), golden.decode)


@pytest.mark.parametrize("name", LLAMAS)
def test_the_float64_reading_of_the_formulas_gives_the_golden_logits(name: str) -> None:
    with np.load(GOLDEN / name / "logits.npz") as arrays:
        logits = ReferenceLlama(GOLDEN / name / "model.gguf").logits(arrays["ids"].tolist())
        expected = arrays["logits_full"]
    assert np.abs(logits - expected).max() < 1e-5 * np.abs(expected).max()


TINY = {
    "one KV head for each three": {"hidden": 96, "heads": 6, "kv_heads": 2, "head_dim": 16, "types": "Q4_1"},
    "no shared KV heads": {"hidden": 64, "heads": 4, "kv_heads": 4, "types": "Q8_0", "tied": False},
    "heads wider than the model": {"hidden": 32, "heads": 4, "kv_heads": 2, "head_dim": 16, "types": "Q5_1"},
    "widths that are no multiples of 32": {"hidden": 48, "heads": 3, "kv_heads": 3, "ffn": 80, "types": "F16"},
    "halves": {"types": {"attn_q": "F16", "ffn_down": "BF16", "token_embd": "F16"}},
    "llama 3 frequencies": {"hidden": 64, "heads": 4, "kv_heads": 2, "types": "Q5_0", "rope_freqs": True},
}


@pytest.fixture(params=TINY)
def tiny(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "tiny.gguf", seed=3, **TINY[request.param])  # type: ignore[arg-type]


def logits_of(path: Path, tokens: list[int], activations: str, kv_type: str) -> NDArray[np.float32]:
    with loaded(path, activations=activations, kv_type=kv_type) as runner:
        return feed(runner, tokens, list(range(blocks_for(len(tokens)))), chunk=512)


def test_float_activations_agree_with_the_float64_reading(tiny: Path) -> None:
    tokens = np.random.default_rng(0).integers(0, 288, 150).tolist()
    exact = ReferenceLlama(tiny).logits(tokens)
    assert np.abs(logits_of(tiny, tokens, "f32", "f32") - exact).max() < 1e-4 * np.abs(exact).max()


@pytest.mark.parametrize("kv_type", ["f16", "f32", "q8_0"])
def test_int8_activations_move_the_distribution_a_little_only(tiny: Path, kv_type: str) -> None:
    tokens = np.random.default_rng(1).integers(0, 288, 150).tolist()
    exact = log_softmax(ReferenceLlama(tiny).logits(tokens))
    found = log_softmax(logits_of(tiny, tokens, "int8", kv_type).astype(np.float64))
    divergence = (np.exp(exact) * (exact - found)).sum(axis=1)
    assert divergence.mean() < 5e-4 and divergence.max() < 3e-3


FAMILIES: dict[str, tuple[str, dict[str, object]]] = {
    "qwen2": ("qwen2", {"types": "Q4_1", "kv_heads": 1}),
    "qwen3": ("qwen3", {"types": "Q8_0", "heads": 2, "head_dim": 48, "kv_heads": 1}),
    "gemma3, windows within a block": ("gemma3", {"types": "Q8_0", "layers": 4, "window": 5, "head_dim": 32}),
    "gemma3, windows over blocks": ("gemma3", {"types": "Q5_1", "layers": 5, "window": 70, "pattern": 3}),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_other_families_agree_with_the_float64_reading(family: str, tmp_path: Path) -> None:
    architecture, options = FAMILIES[family]
    path = write_tiny_family(tmp_path / "tiny.gguf", architecture, seed=3, **options)  # type: ignore[arg-type]
    tokens = np.random.default_rng(0).integers(0, 288, 250).tolist()
    exact = ReferenceFamily(path).logits(tokens)
    assert np.abs(logits_of(path, tokens, "f32", "f32") - exact).max() < 1e-4 * np.abs(exact).max()
    found = log_softmax(logits_of(path, tokens, "int8", "f16").astype(np.float64))
    divergence = (np.exp(log_softmax(exact)) * (log_softmax(exact) - found)).sum(axis=1)
    assert divergence.mean() < 1e-3 and divergence.max() < 1e-2


def log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted: NDArray[np.float64] = logits - logits.max(axis=1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result
