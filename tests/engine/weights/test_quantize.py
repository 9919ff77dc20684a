"""Quantizers against the gguf package and against what llama.cpp's own reach, and what a quantized model shows."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from engine.errors import ModelFileError, OctavoError
from engine.weights import quantize
from engine.weights.files.gguf import GgufFile
from engine.weights.open_weights import open_weights
from engine.weights.quantized_file import QuantizedFile, quantized
from kernels.quant.weight_types import WEIGHT_TYPES
from tests.engine.weights.safetensors_bytes import LLAMA_CONFIG, llama_tensors, write_folder
from tests.tiny.models import write_tiny_llama

SIMPLE = {
    "Q8_0": quantize.q8_0,
    "Q4_0": quantize.q4_0,
    "Q4_1": quantize.q4_1,
    "Q5_0": quantize.q5_0,
    "Q5_1": quantize.q5_1,
}
K_QUANTS = {"Q4_K": quantize.q4_k, "Q5_K": quantize.q5_k, "Q6_K": quantize.q6_k}
# Root mean squares of the errors that llama.cpp 0c1e57098 makes on standard normal values.
LLAMA_CPP_ERRORS = {"Q4_K": 0.07142, "Q5_K": 0.03614, "Q6_K": 0.01775}


def normal(count: int, size: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((count, size), dtype=np.float32)


def special_blocks(size: int) -> NDArray[np.float32]:
    """Blocks that divide by nothing, round a half, or have all values on one side."""
    blocks = normal(8, size)
    blocks[0] = 0
    blocks[1] = 1
    blocks[2] = -1
    blocks[3] = np.abs(blocks[3])
    blocks[4] = -np.abs(blocks[4])
    blocks[5] = np.arange(size) / 2
    blocks[6] *= 1e-2
    blocks[7, 1:] = 0
    return blocks


@pytest.mark.parametrize("name", SIMPLE)
def test_blocks_of_32_are_those_of_the_gguf_package(name: str) -> None:
    blocks = np.concatenate([normal(500, 32), special_blocks(32)])
    expected = gguf.quants.quantize(blocks, gguf.GGMLQuantizationType[name])
    assert np.array_equal(SIMPLE[name](blocks), expected)


@pytest.mark.parametrize("name", K_QUANTS)
def test_k_quants_are_as_close_as_those_of_llama_cpp(name: str) -> None:
    blocks = normal(1000, 256)
    found = WEIGHT_TYPES[name].dequantize(K_QUANTS[name](blocks))
    assert np.sqrt(np.mean((found - blocks) ** 2)) < 1.05 * LLAMA_CPP_ERRORS[name]


@pytest.mark.parametrize("name", K_QUANTS)
def test_k_quants_of_special_blocks_stay_close(name: str) -> None:
    blocks = special_blocks(256)
    found = WEIGHT_TYPES[name].dequantize(K_QUANTS[name](blocks))
    assert np.array_equal(found[0], blocks[0])
    span = blocks.max(axis=1).clip(min=0) - blocks.min(axis=1).clip(max=0)
    steps = {"Q4_K": 15, "Q5_K": 31, "Q6_K": 31}[name]
    assert (np.abs(found - blocks).max(axis=1) <= 1.5 * span / steps).all()
    one_side = WEIGHT_TYPES[name].dequantize(K_QUANTS[name](blocks[1:3]))
    assert np.abs(one_side - blocks[1:3]).max() < 0.02


def test_bf16_is_rounded_to_even_and_keeps_what_is_no_number() -> None:
    values = np.array([1.0, 1.00390625, 1.01171875, np.inf, np.nan, -2.5], np.float32)[:, None]
    bits = quantize.bf16(values).view(np.uint16)[:, 0].astype(np.uint32) << 16
    assert np.array_equal(bits.view(np.float32)[:4], [1.0, 1.0, 1.015625, np.inf])
    assert np.isnan(bits.view(np.float32)[4]) and bits.view(np.float32)[5] == -2.5


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Rows of 64 values but for those of the FFN's way back, which have 96 and one of 48 in the heads."""
    return write_tiny_llama(tmp_path / "tiny.gguf", types={"attn_q": "F16", "attn_k": "Q8_0"}, hidden=64, ffn=256)


def test_matrices_of_floats_are_quantized_and_nothing_else(tiny: Path) -> None:
    with GgufFile.open(tiny) as file:
        shown = quantized(file, "q4_k")
        types = {name: info.type for name, info in shown.tensors.items() if name.startswith("blk.0.") or "." in name}
        assert types["blk.0.ffn_down.weight"] == "Q4_K"  # rows of 256
        assert types["blk.0.attn_q.weight"] == types["blk.0.ffn_up.weight"] == "Q5_0"  # rows of 64
        assert types["blk.0.attn_k.weight"] == "Q8_0"  # was quantized before
        assert types["blk.0.attn_norm.weight"] == "F32"
        assert types["token_embd.weight"] == "Q8_0"  # the head: Q6_K, and rows of 64
        assert quantized(file, None) is file


def test_rows_are_quantized_as_they_are_asked_for(tiny: Path) -> None:
    name = "blk.0.attn_q.weight"
    with GgufFile.open(tiny) as file, QuantizedFile(file, "Q5_1") as shown:
        values = file.raw(name).view(np.float16).astype(np.float32)
        expected = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q5_1)
        assert np.array_equal(shown.raw(name), expected)
        assert np.array_equal(shown.rows(name, 7, 9), expected[7:16])
        info = shown.tensors[name]
        assert (info.shape, info.nbytes) == ((64, 64), expected.nbytes)
        assert np.array_equal(shown.raw("output_norm.weight"), file.raw("output_norm.weight"))


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_values_that_are_no_numbers_are_refused_by_name(tmp_path: Path, value: float) -> None:
    tensors = llama_tensors()
    tensors["model.layers.0.self_attn.o_proj.weight"][1, 1] = value
    shown = quantized(open_weights(write_folder(tmp_path, LLAMA_CONFIG, tensors)), "q8_0")
    with shown, pytest.raises(ModelFileError, match=r"attn_output\.weight holds values that are not numbers"):
        shown.rows("blk.0.attn_output.weight", 0, 32)


def test_rows_that_no_block_fits_stay_as_they_are(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "odd.gguf", hidden=48, heads=3, kv_heads=3, ffn=80)
    with GgufFile.open(path) as file:
        assert {info.type for info in quantized(file, "q8_0").tensors.values()} == {"F32"}


def test_an_unknown_type_is_named(tiny: Path) -> None:
    with GgufFile.open(tiny) as file, pytest.raises(OctavoError, match="cannot be quantized to 'q3_k'; give one of"):
        quantized(file, "q3_k")
