"""Loading a runner, what it says about itself, and what it refuses."""

import threading
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.api.config import EngineConfig
from engine.errors import ModelError, ModelFileError, OctavoError, UnsupportedModelError
from engine.families.emit.attention_state import KvLayers
from engine.loading.load_runner import LoadedRunner, _plan_memory, load_runner
from engine.loading.memory_plan import MemoryNeeds
from engine.loading.runner import Runner
from engine.run.runner_protocol import SequenceRows
from engine.weights.files.gguf import GgufFile
from kernels.machine.cpu import usable_cores
from kernels.simd.tiers import supported_tiers
from tests.engine.runners import feed, loaded, same_bits
from tests.tiny.models import write_tiny_llama

VOCABULARY = 277  # no multiple of 16


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return write_tiny_llama(path, types="Q4_1", vocab=VOCABULARY, context=300)


def load(path: Path, options: EngineConfig | None = None) -> LoadedRunner:
    with GgufFile.open(path) as file:
        return load_runner(file, options or EngineConfig(threads=1), lambda stage, done: None)


def test_a_runner_tells_its_sizes(model: Path) -> None:
    result = load(model, EngineConfig(lanes=3, context_length=130, threads=2, max_rows=77))
    runner = result.runner
    try:
        assert (runner.block_tokens, runner.groups[0].n_blocks) == (64, 9)
        assert (runner.context_length, runner.vocab_size) == (130, VOCABULARY)
        assert (runner.max_rows, runner.threads) == (77, 2)
        assert result.isa == supported_tiers()[0]
    finally:
        runner.close()


def test_without_options_the_model_and_the_machine_decide(model: Path) -> None:
    runner = load(model, EngineConfig()).runner
    assert (runner.context_length, runner.groups[0].n_blocks, runner.threads) == (300, 40, usable_cores())
    runner.close()


def test_the_bytes_of_a_token_are_those_of_the_packed_matrices(model: Path) -> None:
    result = load(model)
    result.runner.close()
    # Q4_1 takes 20 bytes for 32 values; 277 outputs are padded to 288.
    values = 288 * 64 + 2 * (64 * 64 * 2 + 32 * 64 * 2 + 96 * 64 * 3)
    assert result.bytes_per_token == values * 20 // 32


def test_logits_come_in_the_order_of_the_batch_for_those_who_want_them(model: Path) -> None:
    with loaded(model, rows=64) as runner:
        alone = [feed(runner, [token], [token], chunk=1) for token in range(4)]
        logits = runner.run([SequenceRows([token], 0, ([token],), int(token != 2)) for token in (3, 2, 0, 1)])
        assert logits.shape == (3, VOCABULARY) and logits.dtype == np.float32
        assert same_bits(logits, np.concatenate([alone[3], alone[0], alone[1]]))
        assert runner.run([SequenceRows([5, 6], 0, ([0],), 0)]).shape == (0, VOCABULARY)


def test_logits_are_a_view_that_the_next_run_overwrites(model: Path) -> None:
    with loaded(model, rows=64) as runner:
        first = runner.run([SequenceRows([1], 0, ([0],), 1)])
        kept = first.copy()
        second = runner.run([SequenceRows([2], 0, ([1],), 1)])
        assert same_bits(first, second) and not same_bits(first, kept)


def test_a_block_table_must_hold_the_rows(model: Path) -> None:
    with loaded(model) as runner, pytest.raises(AssertionError):
        runner.run([SequenceRows([1, 2], 63, ([0],), 1)])


def test_rows_must_stay_within_the_context(model: Path) -> None:
    with loaded(model) as runner, pytest.raises(AssertionError):
        runner.run([SequenceRows([1, 2], 299, ([0, 1, 2, 3, 4],), 1)])


def test_closing_ends_the_threads(model: Path) -> None:
    before = threading.active_count()
    with loaded(model, threads=3):
        assert threading.active_count() == before + 2
    assert threading.active_count() == before


def test_progress_names_the_stages_and_only_grows(model: Path) -> None:
    seen: list[tuple[str, float]] = []
    with GgufFile.open(model) as file:
        load_runner(file, EngineConfig(threads=1), lambda stage, done: seen.append((stage, done))).runner.close()
    assert list(dict.fromkeys(stage for stage, _ in seen)) == ["Compiling kernels", "Loading weights"]
    for stage in ("Compiling kernels", "Loading weights"):
        fractions = [done for name, done in seen if name == stage]
        assert fractions == sorted(fractions) and fractions[0] >= 0 and fractions[-1] <= 1
    assert seen[-1][1] > 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (EngineConfig(isa="mmx"), "no instruction tier 'mmx'.* amx, avx512, avxvnni, avx2, generic"),
        (EngineConfig(kv_type="q4_0"), "no type 'q4_0' of keys and values.* f16, f32, q8_0"),
        (EngineConfig(threads=0), "--threads 0 is out of range"),
        (EngineConfig(threads=-2), "--threads -2 is out of range"),
        (EngineConfig(threads=5000), "--threads 5000 is out of range"),
        (EngineConfig(context_length=0), "--ctx 0 is out of range.* 1 to 300 tokens"),
        (EngineConfig(context_length=301), "--ctx 301 is out of range"),
    ],
)
def test_a_bad_option_is_one_sentence(model: Path, options: EngineConfig, message: str) -> None:
    with pytest.raises(OctavoError, match=message) as caught:
        load(model, options)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def test_a_tier_that_the_processor_lacks_is_refused(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.loading.load_runner.supported_tiers", lambda: ("avx2", "generic"))
    with pytest.raises(OctavoError, match="cannot run the tier 'avx512'; it can run avx2, generic"):
        load(model, EngineConfig(isa="avx512"))


@pytest.mark.parametrize(("kv_type", "token_bytes"), [("f32", 16 * 4), ("f16", 16 * 2), ("q8_0", 16 + 4)])
def test_scarce_memory_shortens_the_context(
    model: Path, monkeypatch: pytest.MonkeyPatch, kv_type: str, token_bytes: int
) -> None:
    block = 2 * 2 * 2 * 64 * token_bytes  # keys and values, layers, KV heads, tokens
    free = max(2 * 3 * block, model.stat().st_size + 4 * block)
    monkeypatch.setattr("engine.loading.load_runner.available_memory", lambda: free)
    runner = load(model, EngineConfig(threads=1, kv_type=kv_type)).runner
    assert (runner.groups[0].n_blocks, runner.context_length) == (3, 192)
    caches = runner._state.attention.groups[0].caches
    assert sum(cache.keys.nbytes + cache.values.nbytes for cache in caches) == 3 * block
    runner.close()


@pytest.mark.parametrize(("weights", "blocks"), [(0, 50), (30, 50), (60, 35), (84, 14), (90, 12), (500, 12)])
def test_keys_and_values_take_no_more_than_the_weights_leave(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, weights: int, blocks: int
) -> None:
    group = KvLayers(layers=1, window=0, stride=1, key_bytes=500, value_bytes=500)
    needs = MemoryNeeds(groups=(group,), state_bytes=0, context=64_000, lanes=8, max_rows=64)
    monkeypatch.setattr("engine.loading.load_runner.available_memory", lambda: 100 * group.block_bytes)
    plan = _plan_memory(needs, None, weights * group.block_bytes)
    assert plan.n_blocks == (blocks,)
    assert any("raise its limit" in record.getMessage() for record in caplog.records) == (weights > 100)


def test_no_memory_for_a_single_block_is_an_error(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.loading.load_runner.available_memory", lambda: 1000)
    with pytest.raises(OctavoError, match="too little free memory"):
        load(model)


def test_another_architecture_is_refused_by_name(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(model.read_bytes().replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0mamba", 1))
    with pytest.raises(UnsupportedModelError, match="architecture 'mamba'; this version runs: llama, qwen2, "):
        load(other)


def test_a_missing_tensor_is_named(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(model.read_bytes().replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_ux.weight", 1))
    with pytest.raises(ModelFileError, match=r"is incomplete: it has no tensor blk\.1\.ffn_up\.weight"):
        load(other)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"heads": 4, "kv_heads": 3, "head_dim": 16}, "4 heads do not share 3 KV heads evenly"),
        ({"hidden": 72, "heads": 2, "kv_heads": 2, "head_dim": 32}, "needs multiples of 16"),
        ({"heads": 8, "kv_heads": 2, "head_dim": 8}, "needs multiples of 16"),
        ({"ffn": 100}, "needs multiples of 16"),
    ],
)
def test_shapes_that_kernels_cannot_take_are_refused(tmp_path: Path, shape: dict[str, int], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(write_tiny_llama(tmp_path / "odd.gguf", **shape))  # type: ignore[arg-type]


@pytest.mark.parametrize("types", ["F32", "Q4_1"])
def test_a_model_whose_logits_are_no_numbers_is_refused(tmp_path: Path, types: str) -> None:
    damaged = write_tiny_llama(tmp_path / "damaged.gguf", types=types)
    for tensor in gguf.GGUFReader(damaged, "r+").tensors:
        if tensor.name == "output_norm.weight":
            tensor.data[3] = np.nan
    with pytest.raises(ModelError, match="not numbers"):
        load(damaged)


def test_a_refused_model_leaves_no_thread_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(runner: Runner) -> None:
        raise UnsupportedModelError("Refused.")

    monkeypatch.setattr("engine.loading.load_runner._warm_up", refuse)
    before = threading.active_count()
    with pytest.raises(UnsupportedModelError):
        load(write_tiny_llama(tmp_path / "tiny.gguf"), EngineConfig(threads=3))
    assert threading.active_count() == before
