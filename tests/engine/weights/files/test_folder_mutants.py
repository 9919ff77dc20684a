"""Every mutant of a golden config.json is refused, warned about, other in its logits, or known to be the same."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.errors import ModelError
from engine.families.registry import read_blueprint
from engine.weights.mapping.config_keys import HARMLESS, REFUSED
from engine.weights.open_weights import open_weights
from tests.engine.families.mutants import logits_of
from tests.engine.runners import GOLDEN, same_bits

FOLDERS = ("llama3_rope", "qwen2", "qwen3", "qwen3_moe", "qwen3_5_moe", "gemma3")
# A limit of what is taken; whether the head is the embedding, which the tensors tell where the file has one of them.
LIMITS = ("max_position_embeddings", "tie_word_embeddings")
# The width of layers without experts, and of windows, of which these models have none.
NOT_THERE = {"intermediate_size": ("qwen3_moe", "qwen3_5_moe"), "sliding_window": ("qwen2", "qwen3", "qwen3_moe")}
# What transformers takes where the key is not there, and the golden model says.
FOLLOWS = (
    *("head_dim", "num_key_value_heads", "rms_norm_eps", "hidden_act", "hidden_activation", "vocab_size"),
    *("layer_types", "full_attention_interval", "rope_parameters", "use_sliding_window", "sliding_window_pattern"),
    *("_sliding_window_pattern", "partial_rotary_factor", "decoder_sparse_step", "mlp_only_layers", "norm_topk_prob"),
    *("query_pre_attn_scalar", "use_bidirectional_attention", "linear_conv_kernel_dim", "sliding_window"),
    *("model_type", "num_local_experts", "num_experts"),
)
ADDED = (0, 2, 0.5, True, False, "sigmoid", ["x"])


def mutants_of(config: dict[str, Any]) -> Iterator[tuple[str, str, object, dict[str, Any]]]:
    """Kind of change, key, new value, and the whole configuration; of the text model where it is nested."""
    text = config.get("text_config", config)

    def with_text(changed: dict[str, Any]) -> dict[str, Any]:
        return {**config, "text_config": changed} if "text_config" in config else changed

    for key, value in text.items():
        if value is None:  # as if it were not there
            continue
        yield "dropped", key, None, with_text({other: each for other, each in text.items() if other != key})
        for change in changes_of(value):
            yield "changed", key, change, with_text({**text, key: change})
    for key in ("made_up", "sliding_window", *sorted(REFUSED)):
        if text.get(key) is None:
            for value in ADDED:
                yield "added", key, value, with_text({**text, key: value})


def changes_of(value: object) -> Iterator[object]:
    match value:
        case bool():
            yield not value
        case int():
            yield from (value + 1, 2 * value, 0)
        case float():
            yield from (2 * value, -value)
        case str():
            yield f"{value}x"
        case list():
            if value:
                yield value[:-1]
            if value != value[::-1]:
                yield value[::-1]
        case dict():
            yield {**value, "made_up": 1}
            yield {}
    yield {"of": "another type"}


def may_be_same(name: str, kind: str, key: str, value: object) -> bool:
    if name in NOT_THERE.get(key, ()):
        return True
    if key in HARMLESS or key in LIMITS or (kind == "dropped" and key in (*FOLLOWS, *REFUSED)):
        return True
    return value in REFUSED.get(key, ()) or (key, value) == ("rope_parameters", {})  # as where it is not there


def outcome(folder: Path, expected: NDArray[np.float32]) -> str:
    try:
        with open_weights(folder) as file:
            if read_blueprint(file).warnings:
                return "warned"
            return "same" if same_bits(logits_of(file), expected) else "other logits"
    except ModelError as error:
        assert "\n" not in str(error) and str(folder) in str(error)
        return "refused"


@pytest.mark.parametrize("name", FOLDERS)
def test_no_mutant_of_a_configuration_is_silently_the_same(name: str, tmp_path: Path) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    silent: list[tuple[str, str, object]] = []
    with open_weights(GOLDEN / name) as file:
        expected = logits_of(file)
    (tmp_path / "model.safetensors").symlink_to(GOLDEN / name / "model.safetensors")
    for kind, key, value, config in mutants_of(json.loads((GOLDEN / name / "config.json").read_text())):
        (tmp_path / "config.json").write_text(json.dumps(config))
        if key in HARMLESS:  # nothing reads it
            continue
        found = outcome(tmp_path, expected)
        if found == "same" and not may_be_same(name, kind, key, value):
            silent.append((kind, key, value))
        counts[kind, found] += 1
    assert not silent
    assert {found for _, found in counts} >= {"refused", "warned", "other logits"}
    print(f"{name}: {sum(counts.values())} mutants, {dict(counts)}")
