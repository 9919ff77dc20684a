"""The table of tensor types agrees with the gguf package."""

import gguf
import pytest

from engine.weights.files.gguf_tensors import GGML_TYPES


@pytest.mark.parametrize("type_id", sorted(GGML_TYPES))
def test_each_entry_is_filed_under_its_own_id(type_id: int) -> None:
    assert GGML_TYPES[type_id].id == type_id


@pytest.mark.parametrize("reference", gguf.GGML_QUANT_SIZES, ids=lambda reference: str(reference.name))
def test_block_sizes_are_those_of_the_gguf_package(reference: gguf.GGMLQuantizationType) -> None:
    ours = GGML_TYPES[int(reference)]
    assert ours.name == reference.name
    sizes = gguf.GGML_QUANT_SIZES[reference]
    if reference.name == "Q8_1":  # the package has the two f32 factors of old; ggml's block holds two f16
        sizes = (32, 2 + 2 + 32)
    assert (ours.block_elements, ours.block_bytes) == sizes
