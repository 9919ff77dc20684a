"""From a file's tensors to what kernels read: every value, and every way in which a file can be wrong."""

from collections.abc import Iterator

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from engine.errors import ModelFileError, UnsupportedModelError
from engine.weights.digest import tensor_digests
from engine.weights.files.gguf import GgufFile
from engine.weights.files.weights_file import WeightBytes
from engine.weights.load import Matrix, WeightLoader
from kernels.quant.weight_types import WEIGHT_TYPES, FloatType
from tests.kernels.ops import random_matrix
from tests.tiny.models import write_out

COLUMNS = 256
TALL_ROWS = 2 * 3824 + 37  # more bytes than one thread takes at a time
VECTOR = np.random.default_rng(0).standard_normal(48).astype(np.float32)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GgufFile]:
    path = tmp_path_factory.mktemp("weights") / "weights.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for name in WEIGHT_TYPES:
        add(writer, f"matrix.{name}", random_matrix(name, 21, COLUMNS), name)
    for name in ("F32", "F16", "BF16"):
        vector = gguf.quants.quantize(VECTOR, gguf.GGMLQuantizationType[name])
        writer.add_tensor(f"vector.{name}", vector, raw_dtype=gguf.GGMLQuantizationType[name])
    add(writer, "tall", random_matrix("Q8_0", TALL_ROWS, 2 * COLUMNS), "Q8_0")
    add(writer, "narrow", random_matrix("F16", 21, 24), "F16")
    add(writer, "unknown", np.zeros((4, 66), np.uint8), "IQ2_XXS")
    write_out(writer)
    with GgufFile.open(path) as opened:
        yield opened


def add(writer: gguf.GGUFWriter, name: str, raw: NDArray[np.uint8], type_name: str) -> None:
    kind = WEIGHT_TYPES.get(type_name)
    # The writer takes the shape of unquantized tensors from their array.
    raw = raw.view({2: np.float16, 4: np.float32}[kind.file_bytes]) if isinstance(kind, FloatType) else raw
    writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[type_name])


def loader(file: GgufFile, activations: str = "int8") -> WeightLoader:
    return WeightLoader(file, activations=activations, progress=lambda done: None)


def loaded(file: GgufFile, name: str, outputs: int, columns: int, activations: str = "int8") -> Matrix:
    """One matrix, filled."""
    weights = loader(file, activations)
    matrix = weights.matrix(name, outputs, columns)
    weights.finish()
    return matrix


@pytest.mark.parametrize("name", WEIGHT_TYPES)
def test_a_matrix_is_packed_in_its_own_type(file: GgufFile, name: str) -> None:
    kind = WEIGHT_TYPES[name]
    matrix = loaded(file, f"matrix.{name}", 21, COLUMNS)
    assert (matrix.kind, matrix.columns) == (kind, COLUMNS)
    assert np.array_equal(matrix.packed, kind.pack(file.raw(f"matrix.{name}")))
    assert matrix.packed.ctypes.data % 64 == 0


@pytest.mark.parametrize("name", WEIGHT_TYPES)
def test_for_float_activations_a_matrix_is_dequantized(file: GgufFile, name: str) -> None:
    matrix = loaded(file, f"matrix.{name}", 21, COLUMNS, "f32")
    values = gguf.quants.dequantize(file.raw(f"matrix.{name}"), gguf.GGMLQuantizationType[name])
    assert matrix.kind is WEIGHT_TYPES["F32"]
    packed = matrix.packed.view(np.float32).transpose(0, 2, 1).reshape(-1, COLUMNS)
    assert np.array_equal(packed[:21], values) and not packed[21:].any()


def test_a_tall_matrix_is_packed_in_parts_that_join(file: GgufFile) -> None:
    matrix = loaded(file, "tall", TALL_ROWS, 2 * COLUMNS)
    assert np.array_equal(matrix.packed, WEIGHT_TYPES["Q8_0"].pack(file.raw("tall")))


def test_for_float_activations_the_parts_join_too(file: GgufFile) -> None:
    matrix = loaded(file, "tall", TALL_ROWS, 2 * COLUMNS, "f32")
    values = WEIGHT_TYPES["Q8_0"].dequantize(file.raw("tall"))
    assert np.array_equal(matrix.packed, WEIGHT_TYPES["F32"].pack(values.view(np.uint8)))


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_a_vector_is_float32(file: GgufFile, name: str) -> None:
    vector = loader(file).vector(f"vector.{name}", 48)
    expected = WEIGHT_TYPES[name].dequantize(file.raw(f"vector.{name}"))[0]
    assert vector.dtype == np.float32 and np.array_equal(vector, expected)
    assert np.abs(vector - VECTOR).max() < 0.02


@pytest.mark.parametrize("name", WEIGHT_TYPES)
def test_embeddings_are_the_rows_asked_for(file: GgufFile, name: str) -> None:
    embed = loader(file).embedding(f"matrix.{name}", 21, COLUMNS)
    ids = [20, 0, 3, 3]
    expected = gguf.quants.dequantize(file.raw(f"matrix.{name}"), gguf.GGMLQuantizationType[name])[ids]
    rows = np.zeros((len(ids), COLUMNS), np.float32)
    embed(ids, rows)
    assert np.array_equal(rows, expected)


@pytest.mark.parametrize("ids", [[21], [-1], [0, 3, 1 << 40]])
def test_ids_beyond_the_table_are_refused(file: GgufFile, ids: list[int]) -> None:
    embed = loader(file).embedding("matrix.Q4_K", 21, COLUMNS)
    with pytest.raises(IndexError, match="not within 0 to 20"):
        embed(ids, np.zeros((len(ids), COLUMNS), np.float32))


def test_finishing_counts_the_packed_bytes_and_reports_progress_to_the_end(file: GgufFile) -> None:
    seen: list[float] = []
    weights = WeightLoader(file, activations="int8", progress=seen.append)
    packed = [weights.matrix(f"matrix.{name}", 21, COLUMNS).packed.nbytes for name in ("Q4_0", "F16", "Q8_0")]
    weights.vector("vector.F32", 48)
    assert weights.finish() == WeightBytes(sum(packed))
    assert seen == sorted(seen) and seen[0] == 0 and seen[-1] == 1 and len(seen) > len(file.tensors)
    # Progress goes by the bytes in the file, of what was taken first: Q4_0 has 18 in 32 values, F16 64, Q8_0 34.
    assert np.allclose(np.diff(seen[:4]) / seen[1], np.array([18, 64, 34]) / 18)
    assert weights.digests == tensor_digests(file, 1, lambda done: None)


def test_the_loader_knows_what_the_file_holds(file: GgufFile) -> None:
    assert loader(file).has("tall") and not loader(file).has("small")


def test_a_missing_tensor_is_named(file: GgufFile) -> None:
    for take in (loader(file).matrix, loader(file).embedding):
        with pytest.raises(ModelFileError, match=r"is incomplete: it has no tensor nothing\."):
            take("nothing", 21, COLUMNS)
    with pytest.raises(ModelFileError, match="it has no tensor nothing"):
        loader(file).vector("nothing", 48)


@pytest.mark.parametrize(("outputs", "columns"), [(20, 256), (21, 32), (256, 21), (21, 257)])
def test_a_wrong_shape_is_named_with_the_right_one(file: GgufFile, outputs: int, columns: int) -> None:
    message = rf"matrix\.Q4_0 has shape \(21, 256\), not \({outputs}, {columns}\)"
    with pytest.raises(ModelFileError, match=message):
        loader(file).matrix("matrix.Q4_0", outputs, columns)
    with pytest.raises(ModelFileError, match=message):
        loader(file).embedding("matrix.Q4_0", outputs, columns)


def test_a_matrix_is_no_vector(file: GgufFile) -> None:
    with pytest.raises(ModelFileError, match=r"has shape \(21, 256\), not \(5376,\)"):
        loader(file).vector("matrix.F32", 21 * COLUMNS)


@pytest.mark.parametrize("activations", ["int8", "f32"])
def test_a_type_without_kernels_is_named_with_those_that_have_some(file: GgufFile, activations: str) -> None:
    with pytest.raises(UnsupportedModelError, match=r"unknown is of type IQ2_XXS, .* F32, F16, BF16, Q4_0"):
        loader(file, activations).matrix("unknown", 4, 256)


def test_rows_of_an_odd_length_are_refused(file: GgufFile) -> None:
    for take in (loader(file).matrix, loader(file).embedding):
        with pytest.raises(UnsupportedModelError, match=r"narrow has 24 columns, .* F16 .* multiples of 16\."):
            take("narrow", 21, 24)
