"""Experts from a file: each one's matrix packed alone, parts of them, and the bytes that a step reads of them."""

from collections.abc import Iterator

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from engine.errors import ModelFileError
from engine.weights.files.gguf import GgufFile
from engine.weights.files.weights_file import WeightBytes
from engine.weights.load import Experts, WeightLoader
from kernels.quant.weight_types import WEIGHT_TYPES
from tests.kernels.ops import random_matrix
from tests.tiny.models import write_out

EXPERTS, OUTPUTS, COLUMNS = 5, 48, 256
MANY = 300  # experts of more bytes than one thread takes at a time
TYPES = ("F16", "Q8_0", "Q4_K", "Q6_K")


def matrices(name: str, count: int) -> NDArray[np.uint8]:
    """Bytes as in a file: uint8 [count, OUTPUTS, row bytes]."""
    return random_matrix(name, count * OUTPUTS, COLUMNS).reshape(count, OUTPUTS, -1)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GgufFile]:
    path = tmp_path_factory.mktemp("weights") / "weights.gguf"
    writer = gguf.GGUFWriter(path, "qwen3moe")
    for name in TYPES:
        raw = matrices(name, EXPERTS)
        values = raw.view(np.float16) if name == "F16" else raw
        writer.add_tensor(f"experts.{name}", values, raw_dtype=gguf.GGMLQuantizationType[name])
    writer.add_tensor("many", matrices("Q4_K", MANY), raw_dtype=gguf.GGMLQuantizationType.Q4_K)
    writer.add_tensor("dense", np.ones((32, COLUMNS), np.float32))
    writer.add_tensor("vector", np.arange(COLUMNS, dtype=np.float32))
    write_out(writer)
    with GgufFile.open(path) as opened:
        yield opened


def loader(file: GgufFile, activations: str = "int8") -> WeightLoader:
    return WeightLoader(file, activations=activations, progress=lambda done: None)


def loaded(file: GgufFile, name: str, count: int, activations: str = "int8") -> Experts:
    weights = loader(file, activations)
    experts = weights.experts(name, count, 2, OUTPUTS, COLUMNS)
    weights.finish()
    return experts


@pytest.mark.parametrize("name", TYPES)
def test_every_expert_is_packed_as_a_matrix_of_its_own(file: GgufFile, name: str) -> None:
    experts, kind = loaded(file, f"experts.{name}", EXPERTS), WEIGHT_TYPES[name]
    assert (experts.kind, experts.columns) == (kind, COLUMNS)
    assert np.array_equal(experts.packed, np.stack([kind.pack(raw) for raw in matrices(name, EXPERTS)]))


def test_many_experts_are_packed_in_parts_that_join(file: GgufFile) -> None:
    kind = WEIGHT_TYPES["Q4_K"]
    expected = kind.pack(matrices("Q4_K", MANY).reshape(MANY * OUTPUTS, -1))
    assert np.array_equal(loaded(file, "many", MANY).packed.reshape(expected.shape), expected)


def test_for_float_activations_experts_are_dequantized(file: GgufFile) -> None:
    experts = loaded(file, "experts.Q4_K", EXPERTS, "f32")
    assert experts.kind is WEIGHT_TYPES["F32"]
    values = gguf.quants.dequantize(matrices("Q4_K", EXPERTS), gguf.GGMLQuantizationType.Q4_K)
    assert np.array_equal(experts.packed.view(np.float32).transpose(0, 1, 3, 2).reshape(values.shape), values)


def test_a_part_of_the_outputs_is_a_view_of_every_expert(file: GgufFile) -> None:
    experts = loaded(file, "experts.Q8_0", EXPERTS)
    part = experts.outputs(16, 48)
    assert np.array_equal(part.packed, experts.packed[:, 1:]) and np.shares_memory(part.packed, experts.packed)


def test_a_vector_is_a_matrix_of_one_row(file: GgufFile) -> None:
    weights = loader(file)
    matrix = weights.matrix("vector", 1, COLUMNS)
    weights.finish()
    values = matrix.packed.view(np.float32).reshape(COLUMNS, 16)
    assert np.array_equal(values[:, 0], np.arange(COLUMNS)) and not values[:, 1:].any()


@pytest.mark.parametrize("shape", [(4, OUTPUTS, COLUMNS), (EXPERTS, 32, COLUMNS), (EXPERTS, OUTPUTS, 128)])
def test_a_wrong_shape_is_named_with_the_right_one(file: GgufFile, shape: tuple[int, int, int]) -> None:
    count, outputs, columns = shape
    message = rf"experts\.Q8_0 has shape \(5, 48, 256\), not \({count}, {outputs}, {columns}\)"
    with pytest.raises(ModelFileError, match=message):
        loader(file).experts("experts.Q8_0", count, 2, outputs, columns)


def test_a_step_reads_the_experts_that_its_rows_go_to(file: GgufFile) -> None:
    weights = loader(file)
    dense = weights.matrix("dense", 32, COLUMNS).packed.nbytes
    experts = sum(weights.experts(f"experts.{n}", EXPERTS, 2, OUTPUTS, COLUMNS).packed.nbytes for n in TYPES[1:])
    found = weights.finish()
    assert found == WeightBytes(dense, experts, expert_count=EXPERTS, active=2)
    assert found.of_step(1) == pytest.approx(dense + experts * 2 / 5)


def test_rows_share_experts_as_chance_has_it() -> None:
    """Against counting: 8 of 256 experts a row, drawn evenly."""
    model, random = WeightBytes(1000, 256 * 100, expert_count=256, active=8), np.random.default_rng(0)
    for rows in (1, 4, 8, 64):
        draws = [random.permuted(np.tile(np.arange(256), (rows, 1)), axis=1)[:, :8] for _ in range(200)]
        counted = 1000 + 100 * np.mean([len(np.unique(draw)) for draw in draws])
        assert model.of_step(rows) == pytest.approx(counted, rel=0.01)


def test_a_dense_model_reads_all_its_bytes() -> None:
    assert WeightBytes(1000).of_step(1) == WeightBytes(1000).of_step(8) == 1000
