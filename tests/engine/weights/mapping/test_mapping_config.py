"""Both spellings of config.json, and what scaled positions become in GGUF's terms."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.errors import ModelFileError, UnsupportedModelError
from engine.weights.files.metadata import Metadata
from engine.weights.files.safetensors_file import StoredTensor
from engine.weights.mapping.families import map_model
from engine.weights.mapping.recipe import Mapped
from tests.engine.weights.safetensors_bytes import LLAMA_CONFIG, llama_tensors

GEMMA_NORMS = ("pre_feedforward_layernorm", "post_feedforward_layernorm", "self_attn.q_norm", "self_attn.k_norm")


def stored(tensors: dict[str, NDArray[np.float32]]) -> dict[str, StoredTensor]:
    return {name: StoredTensor(name, "F32", values.shape, 0, values.nbytes) for name, values in tensors.items()}


def mapped(**changes: object) -> Mapped:
    return map_model(Metadata(LLAMA_CONFIG | changes, Path("config.json")), stored(llama_tensors()))


def mapped_gemma3(**changes: object) -> Mapped:
    tensors = llama_tensors()
    tensors |= {f"model.layers.0.{name}.weight": np.zeros(32, np.float32) for name in GEMMA_NORMS}
    config = LLAMA_CONFIG | {"model_type": "gemma3_text", "head_dim": 16, "query_pre_attn_scalar": 16} | changes
    return map_model(Metadata(config, Path("config.json")), stored(tensors))


def test_the_base_of_rotary_positions_is_read_in_both_spellings() -> None:
    old = mapped(rope_theta=5e5)
    new = mapped(rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    assert old.metadata == new.metadata
    assert old.metadata["llama.rope.freq_base"] == 500000.0
    assert mapped().metadata["llama.rope.freq_base"] == 10000.0


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


def test_llama3_scaling_becomes_divisors_of_frequencies() -> None:
    old = mapped(rope_theta=10000.0, rope_scaling={"rope_type": "llama3", **LLAMA3})
    new = mapped(rope_parameters={"rope_type": "llama3", "rope_theta": 10000.0, **LLAMA3})
    divisors = old.made["rope_freqs.weight"]
    assert np.array_equal(divisors, new.made["rope_freqs.weight"])
    waves = 2 * np.pi * 10000.0 ** (np.arange(0, 16, 2) / 16)
    assert (divisors[waves < 64 / 4] == 1).all() and (divisors[waves > 64] == 8).all()
    between = (waves >= 64 / 4) & (waves <= 64)
    assert between.any() and ((divisors[between] > 1) & (divisors[between] < 8)).all()


def test_linear_scaling_is_said_in_metadata() -> None:
    values = mapped(rope_scaling={"type": "linear", "factor": 3.0}).metadata
    assert (values["llama.rope.scaling.type"], values["llama.rope.scaling.factor"]) == ("linear", 3.0)


def test_yarn_stretches_the_context_and_says_what_differs_from_the_usual() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    values = mapped(rope_scaling=yarn).metadata
    assert values["llama.context_length"] == 256
    assert values["llama.rope.scaling.original_context_length"] == 64
    assert "llama.rope.scaling.attn_factor" not in values
    usual = 0.1 * np.log(4.0) + 1
    values = mapped(rope_scaling=yarn | {"attention_factor": 1.0}).metadata
    assert values["llama.rope.scaling.attn_factor"] == pytest.approx(1 / usual)
    values = mapped(rope_scaling=yarn | {"mscale": 1.0, "mscale_all_dim": 1.0}).metadata
    assert values["llama.rope.scaling.attn_factor"] == pytest.approx(1 / usual)


@pytest.mark.parametrize(
    ("rope", "error"),
    [
        ({"rope_type": "yarn", "factor": 0.5}, ModelFileError),
        ({"rope_type": "yarn", "factor": 2.0, "truncate": False}, UnsupportedModelError),
        ({"rope_type": "llama3", **LLAMA3, "low_freq_factor": 4.0}, ModelFileError),
        ({"rope_type": "dynamic", "factor": 2.0}, UnsupportedModelError),
    ],
)
def test_scaling_that_cannot_be_is_refused(rope: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        mapped(rope_parameters=rope)


def test_gemmas_two_bases_are_read_in_both_spellings() -> None:
    nested = {
        "sliding_attention": {"rope_theta": 1e4},
        "full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0},
    }
    new = mapped_gemma3(rope_parameters=nested)
    old = mapped_gemma3(rope_theta=1e6, rope_local_base_freq=1e4, rope_scaling={"rope_type": "linear", "factor": 8.0})
    assert old.metadata == new.metadata
    assert old.metadata["gemma3.rope.freq_base"] == 1e6
    assert old.metadata["gemma3.rope.freq_base_swa"] == 1e4
    assert old.metadata["gemma3.rope.scaling.factor"] == 8.0


def test_gemma_that_a_multi_modal_config_says_little_of_has_its_usual_shape() -> None:
    values = mapped_gemma3().metadata
    assert (values["gemma3.attention.sliding_window"], values["gemma3.rope.freq_base"]) == (4096, 1e6)


def test_gemma_that_scales_its_queries_unlike_its_heads_says_so() -> None:
    assert mapped_gemma3(query_pre_attn_scalar=64).metadata["gemma3.attention.scale"] == 0.125
    assert "gemma3.attention.scale" not in mapped_gemma3().metadata


@pytest.mark.parametrize(
    "change",
    [
        {"layer_types": ["full_attention"]},
        {"sliding_window_pattern": 2},
        {"final_logit_softcapping": 30.0},
        {"hidden_activation": "relu"},
    ],
)
def test_gemma_of_another_make_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(UnsupportedModelError):
        mapped_gemma3(**change)
