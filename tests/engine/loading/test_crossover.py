"""The number of rows from which matrix tiles are used: chosen from scripted times, and free to differ."""

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.api.config import EngineConfig
from engine.loading import crossover
from engine.loading.crossover import choose_crossover, measured_crossover
from engine.loading.load_runner import load_runner
from engine.weights.files.gguf import GgufFile
from kernels.matmul.activations import NEVER, Activations
from kernels.quant.weight_types import WEIGHT_TYPES, WeightType
from kernels.simd.tiers import TIERS_BY_NAME, supported_tiers
from tests.engine.runners import blocks_for, feed, loaded, random_tokens, same_bits
from tests.tiny.mixture import write_tiny_mixture
from tests.tiny.models import write_tiny_llama
from tests.tiny.qwen35 import write_tiny_qwen35

AMX = TIERS_BY_NAME["amx"].number
MODELS: dict[str, Callable[..., Path]] = {
    "llama": write_tiny_llama,
    "qwen3moe": write_tiny_mixture,
    "qwen35moe": write_tiny_qwen35,
}


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({16: (2, 1), 32: (4, 2), 64: (8, 3), 128: (16, 5)}, 16),
        ({16: (2, 3), 32: (4, 3), 64: (8, 3), 128: (16, 5)}, 32),
        ({16: (2, 1), 32: (4, 5), 64: (8, 3), 128: (16, 5)}, 64),  # 16 may have won by chance
        ({16: (2, 3), 32: (4, 5), 64: (8, 9), 128: (16, 5)}, 128),
        ({16: (2, 1), 32: (4, 2), 64: (8, 3), 128: (16, 17)}, NEVER),
        ({16: (2, 2), 32: (4, 2)}, 32),  # who draws has not won
        ({128: (16, 5), 16: (2, 3), 32: (4, 3)}, 32),
    ],
)
def test_tiles_of_16_begin_where_they_win_for_all_that_was_measured(
    seconds: dict[int, tuple[float, float]], expected: int
) -> None:
    assert choose_crossover(seconds) == expected


def scripted(monkeypatch: pytest.MonkeyPatch, from_rows: int) -> list[str]:
    """Let tiles of 16 win from a number of rows on; returns the names of the types that are asked for."""
    asked: list[str] = []

    def measure(kind: WeightType, tier: int) -> dict[int, tuple[float, float]]:
        asked.append(kind.name)
        return {rows: (1.0, 0.5 if rows >= from_rows else 2.0) for rows in crossover.ROW_COUNTS}

    monkeypatch.setattr(crossover, "_measure", measure)
    return asked


def test_the_type_that_most_weights_have_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    types = {"ffn_gate": "Q4_0", "ffn_up": "Q4_0", "ffn_down": "Q4_0", "attn_q": "Q8_0"}
    file = GgufFile.open(write_tiny_llama(tmp_path / "tiny.gguf", types=types))
    asked = scripted(monkeypatch, 32)
    assert measured_crossover(file, "int8", AMX) == 32
    assert measured_crossover(file, "f32", AMX) == 32
    assert asked == ["Q4_0", "F32"]


@pytest.mark.parametrize("tier", ["generic", "avx2", "avxvnni", "avx512"])
def test_without_matrix_tiles_nothing_is_measured(tier: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = scripted(monkeypatch, 16)
    file = GgufFile.open(write_tiny_llama(tmp_path / "tiny.gguf"))
    assert measured_crossover(file, "int8", TIERS_BY_NAME[tier].number) == NEVER and not asked


@pytest.mark.parametrize("kind", ["F32", "F16"])
def test_both_ways_are_timed_for_every_number_of_rows(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tiles of floats, which any processor has; no time is asserted, but that there is one."""
    tiles_of_16(monkeypatch)
    times = crossover._measure(WEIGHT_TYPES[kind], TIERS_BY_NAME[supported_tiers()[0]].number)
    assert tuple(times) == crossover.ROW_COUNTS
    assert all(narrow > 0 and wide > 0 for narrow, wide in times.values())


def tiles_of_16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every tier tiles of 16; those of floats run anywhere."""
    monkeypatch.setattr("kernels.matmul.gemv.has_matrix_tiles", lambda tier: True)


@pytest.mark.parametrize("rows", [16, 24, 100])
@pytest.mark.parametrize("family", MODELS)
def test_a_models_crossover_changes_no_bit(
    family: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = MODELS[family](tmp_path / "model.gguf", types="F32")
    with loaded(path) as runner:
        tokens = random_tokens(runner, 130, seed=1)
        expected = feed(runner, tokens, range(blocks_for(130)), chunk=1)
    tiles_of_16(monkeypatch)
    monkeypatch.setattr("engine.loading.load_runner.measured_crossover", lambda *_: rows)
    allocate, crossovers = Activations.allocate, set()

    def spy(max_rows: int, max_columns: int, crossover: int = NEVER) -> Activations:
        crossovers.add(crossover)
        return allocate(max_rows, max_columns, crossover)

    monkeypatch.setattr(Activations, "allocate", spy)
    with loaded(path, threads=2) as runner:
        assert crossovers == {rows}, "all that a program packs and reads has one"
        for chunk in (15, 31, 130):
            assert same_bits(feed(runner, tokens, range(blocks_for(130)), chunk), expected), chunk


def test_what_was_measured_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = GgufFile.open(write_tiny_llama(tmp_path / "tiny.gguf", types="F32"))
    tiles_of_16(monkeypatch)
    for rows, told in ((48, 48), (NEVER, None)):
        monkeypatch.setattr("engine.loading.load_runner.measured_crossover", lambda *_, rows=rows: rows)
        result = load_runner(file, EngineConfig(threads=1), lambda stage, done: None)
        result.runner.close()
        assert result.crossover == told
