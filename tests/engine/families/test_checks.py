"""What a file's keys and tensors mean: what llama.cpp runs is run, and what means another model is refused by name."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.errors import ModelError, ModelFileError, UnsupportedModelError
from engine.families.registry import FAMILIES, Blueprint, read_blueprint
from engine.weights.draft_head import open_drafting
from tests.engine.families.test_golden import logits_of
from tests.engine.runners import GOLDEN
from tests.gguf_parts import write_part
from tests.reference.llama import ReferenceLlama
from tests.tiny.families import write_tiny_family
from tests.tiny.models import write_tiny_llama


def blueprint(path: Path) -> Blueprint:
    with open_drafting(path) as file:
        return read_blueprint(file)


def with_key(name: str, folder: Path, key: str, value: object) -> Path:
    """A golden model with one key more, under the architecture's prefix."""
    source = GOLDEN / name / "model.gguf"
    architecture = gguf.GGUFReader(source).fields["general.architecture"].contents()
    return write_part(source, folder / "changed.gguf", lambda name: True, added={f"{architecture}.{key}": value})


def test_every_family_has_its_lists_and_no_key_is_on_two() -> None:
    for keys in (family.keys for family in FAMILIES.values()):
        assert not keys.used & keys.harmless and not (keys.used | keys.harmless) & keys.refused.keys()
        assert all(key in keys.used for group in keys.required for key in group)


def test_every_key_of_the_specification_is_on_a_list() -> None:
    names = {value for group in vars(gguf.Keys).values() if isinstance(group, type) for value in vars(group).values()}
    plain = {name.removeprefix("{arch}.") for name in names if isinstance(name, str) and name.startswith("{arch}.")}
    for architecture, keys in ((name, family.keys) for name, family in FAMILIES.items()):
        known = keys.used | keys.harmless | keys.refused.keys()
        assert {name for name in plain if name.format(dense="dense_2") not in known} == set(), architecture


REFUSED = [
    ("llama_gqa", "attention.causal", False),
    ("qwen2", "attention.causal", False),
    ("gemma3", "attention.causal", False),
    ("qwen3_moe", "expert_gating_func", 2),
    ("qwen3_moe", "expert_group_count", 4),
    ("qwen3_moe", "expert_group_used_count", 2),
    ("qwen3_moe", "leading_dense_block_count", 1),
    ("qwen3_moe", "expert_shared_count", 1),
    ("qwen3_moe", "swiglu_clamp_exp", [10.0, 10.0, 10.0]),
    ("gemma3", "attn_logit_softcapping", 50.0),
    ("gemma3", "final_logit_softcapping", 30.0),
    ("llama_gqa", "final_logit_softcapping", 30.0),
    ("llama_gqa", "logit_scale", 8.0),
    ("llama_gqa", "residual_scale", 0.22),
    ("llama_gqa", "embedding_scale", 12.0),
    ("llama_gqa", "attention.clamp_kqv", 8.0),
    ("llama_gqa", "attention.temperature_scale", 0.1),
    ("llama_gqa", "use_parallel_residual", True),
    ("llama_gqa", "attention.sliding_window", 8),
    ("qwen2", "attention.sliding_window", 8),
    ("llama_gqa", "rope.scaling.alpha", 1000.0),
]


@pytest.mark.parametrize(("name", "key", "value"), REFUSED)
def test_a_key_that_changes_the_mathematics_is_refused_by_name_and_value(
    name: str, key: str, value: object, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        blueprint(with_key(name, tmp_path, key, value))
    shown = value if not isinstance(value, float) else np.float32(value).item()
    assert f".{key} = {shown}"[:40] in str(caught.value)


NEUTRAL = [
    ("llama_gqa", "attention.causal", True),
    ("qwen3_moe", "expert_gating_func", 1),
    ("qwen3_moe", "expert_group_count", 1),
    ("qwen3_moe", "expert_weights_scale", 0.0),
    ("gemma3", "final_logit_softcapping", 0.0),
    ("llama_gqa", "logit_scale", 1.0),
    ("llama_gqa", "attention.sliding_window", 0),
    ("llama_gqa", "rope.scaling.finetuned", True),
    ("qwen3_moe", "swiglu_clamp_exp", [0.0, 0.0]),
]


@pytest.mark.parametrize(("name", "key", "value"), NEUTRAL)
def test_a_value_that_changes_nothing_is_no_reason_to_refuse(
    name: str, key: str, value: object, tmp_path: Path
) -> None:
    assert blueprint(with_key(name, tmp_path, key, value)).warnings == ()


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("gemma3", "rope.freq_base"),
        ("qwen2", "rope.freq_base"),
        ("qwen3", "rope.freq_base"),
        ("qwen3_moe", "rope.freq_base"),
        ("qwen3_5_moe", "rope.freq_base"),
        ("qwen3_5_moe", "rope.dimension_count"),
    ],
)
def test_what_the_maker_always_writes_has_no_silent_default(name: str, key: str, tmp_path: Path) -> None:
    changed = write_part(GOLDEN / name / "model.gguf", tmp_path / "x.gguf", lambda name: True, {key: None})
    with pytest.raises(ModelFileError, match=f"no metadata key '[a-z0-9]+.{key}'"):
        blueprint(changed)


def test_windows_by_layer_are_read_from_the_arrays_of_a_real_file(tmp_path: Path) -> None:
    flags = [True, True, False] * 4
    changed = with_key("gemma3", tmp_path, "attention.sliding_window_pattern", flags)
    assert blueprint(changed).config.slides == tuple(flags)


def test_recurrent_layers_are_read_from_the_arrays_of_a_real_file(tmp_path: Path) -> None:
    usual = [True, True, True, False] * 2
    changed = write_part(
        GOLDEN / "qwen3_5_moe" / "model.gguf",
        tmp_path / "x.gguf",
        lambda name: True,
        {"full_attention_interval": None},
        added={"qwen35moe.attention.recurrent_layers": [*usual, False]},
    )
    assert blueprint(changed).config.recurrent == tuple(usual)
    other = with_key("qwen3_5_moe", tmp_path, "attention.recurrent_layers", [True, False] * 4)
    with pytest.raises(ModelFileError, match="names its recurrent layers twice, and differently"):
        blueprint(other)


@pytest.mark.parametrize("key", ["attention.head_count_kv", "feed_forward_length", "attention.head_count"])
def test_a_number_for_each_layer_is_read_where_layers_are_alike(key: str, tmp_path: Path) -> None:
    source = write_tiny_llama(tmp_path / "tiny.gguf")
    value = int(gguf.GGUFReader(source).fields[f"llama.{key}"].contents())
    for numbers in ([value, value], [value, 2 * value]):
        changed = write_part(
            source, tmp_path / "x.gguf", lambda name: True, {key: None}, added={f"llama.{key}": numbers}
        )
        if numbers[0] == numbers[1]:
            assert blueprint(changed).config == blueprint(source).config
        else:
            with pytest.raises(UnsupportedModelError, match=rf"layers that differ in 'llama\.{key}'"):
                blueprint(changed)


TENSORS = [
    ("llama", "blk.0.attn_q_norm.weight"),
    ("llama", "blk.0.attn_q.scale"),
    ("llama", "output.bias"),
    ("llama", "rope_factors_long.weight"),
    ("llama", "cls.output.weight"),
    ("qwen2", "blk.0.attn_output.bias"),
    ("qwen2", "output.bias"),
    ("qwen3", "blk.1.attn_q.bias"),
    ("qwen3", "rope_freqs.weight"),
    ("gemma3", "blk.0.ffn_gate.bias"),
]


@pytest.mark.parametrize(("architecture", "tensor"), TENSORS)
def test_a_tensor_that_the_family_does_not_have_is_refused_by_name(
    architecture: str, tensor: str, tmp_path: Path
) -> None:
    path = tmp_path / "tiny.gguf"
    source = write_tiny_llama(path) if architecture == "llama" else write_tiny_family(path, architecture)
    values = np.full(16, 5, np.float32)
    changed = write_part(source, tmp_path / "x.gguf", lambda name: True, tensors={tensor: values})
    with pytest.raises(UnsupportedModelError, match=rf"x\.gguf has the tensor {tensor}, which"):
        blueprint(changed)


def test_a_tower_of_another_sense_is_left_out_and_named(tmp_path: Path) -> None:
    source = write_tiny_family(tmp_path / "tiny.gguf", "gemma3")
    towers = {name: np.zeros(8, np.float32) for name in ("v.blk.0.attn_q.weight", "mm.input_projection.weight")}
    (warning,) = blueprint(write_part(source, tmp_path / "x.gguf", lambda name: True, tensors=towers)).warnings
    assert warning.startswith("Its 2 tensors of other senses than text, as ")


@pytest.mark.parametrize(
    "present", [("attn_q",), ("attn_k", "attn_v"), ("attn_output",), ("ffn_gate",), ("ffn_up", "ffn_down")]
)
def test_whichever_biases_a_llama_file_has_are_computed(present: tuple[str, ...], tmp_path: Path) -> None:
    random, lengths = np.random.default_rng(5), {"attn_k": 32, "attn_v": 32, "ffn_gate": 96, "ffn_up": 96}
    biases = {
        f"blk.{layer}.{part}.bias": random.standard_normal(lengths.get(part, 64), dtype=np.float32)
        for layer in range(2)
        for part in present
    }
    source = write_tiny_llama(tmp_path / "tiny.gguf")
    changed = write_part(source, tmp_path / "x.gguf", lambda name: True, tensors=biases)
    tokens = random.integers(0, 288, 70).tolist()
    exact = ReferenceLlama(changed).logits(tokens)
    assert np.abs(logits_of(changed, tokens, "f32", "f32") - exact).max() < 1e-4 * np.abs(exact).max()
    assert np.abs(exact - ReferenceLlama(source).logits(tokens)).max() > 0.1


@pytest.mark.parametrize(
    ("key", "value"),
    [("rope.scale_linear", 4.0), ("rope.scaling.factor", 4.0)],
)
def test_the_scalings_of_older_files_are_those_of_the_newer(key: str, value: float, tmp_path: Path) -> None:
    linear = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": value}
    source = write_tiny_llama(tmp_path / "tiny.gguf")
    newer = write_part(source, tmp_path / "newer.gguf", lambda name: True, added=linear)
    older = write_part(source, tmp_path / "older.gguf", lambda name: True, added={f"llama.{key}": value})
    assert blueprint(older).config == blueprint(newer).config != blueprint(source).config


def test_defaults_of_samplers_that_are_not_here_are_told(tmp_path: Path) -> None:
    added = {"general.sampling.temp": 0.5, "general.sampling.mirostat": 0, "general.sampling.xtc_probability": 0.5}
    source = write_tiny_llama(tmp_path / "tiny.gguf")
    changed = write_part(source, tmp_path / "x.gguf", lambda name: True, added=added)
    assert blueprint(changed).warnings == ("The default general.sampling.xtc_probability = 0.5 has no effect here.",)


def test_blocks_of_another_layout_are_refused(tmp_path: Path) -> None:
    source = write_tiny_llama(tmp_path / "tiny.gguf", types="Q4_0")
    for version in (1, 2, 3):
        added = {"general.quantization_version": version}
        changed = write_part(source, tmp_path / f"{version}.gguf", lambda name: True, added=added)
        if version == 2:
            assert blueprint(changed).warnings == ()
        else:
            with pytest.raises(UnsupportedModelError, match=f"general.quantization_version = {version}, and this"):
                blueprint(changed)


def test_errors_of_keys_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        blueprint(with_key("llama_gqa", tmp_path, "attention.sliding_window_pattern", [1] * 500))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400
