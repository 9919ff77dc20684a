"""From hidden states to one vector: which states count, and that no cut changes a bit."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.errors import EngineFaultError
from engine.run.pooling import Pooler, Pooling, pooling_of, unit_length
from engine.weights.files.gguf import GgufFile
from tests.tiny_models import write_out

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
