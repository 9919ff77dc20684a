"""What a gemma3 file says of its layers, and what of it is refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from engine.errors import ModelError
from engine.families.emit.attention_state import KvLayers
from engine.families.gemma3 import Gemma3Config, read_gemma3_config
from engine.weights.files.gguf import GgufFile
from engine.weights.files.weights_file import WeightsFile
from kernels.attention.kv_cache import F16
from tests.tiny.families import write_tiny_family


@dataclass
class Changed:
    """A file with other metadata than is written in it."""

    file: GgufFile
    changes: Mapping[str, object] = field(default_factory=dict)

    def __getattr__(self, name: str) -> object:
        return getattr(self.file, name)

    @property
    def metadata(self) -> dict[str, object]:
        changed = {**self.file.metadata, **{f"gemma3.{key}": value for key, value in self.changes.items()}}
        return {key: value for key, value in changed.items() if value is not None}


@pytest.fixture
def file(tmp_path: Path) -> GgufFile:
    return GgufFile.open(write_tiny_family(tmp_path / "tiny.gguf", "gemma3", layers=12, pattern=None, window=48))


def read(file: GgufFile, **changes: object) -> Gemma3Config:
    renamed = {key.replace("__", "."): value for key, value in changes.items()}
    return read_gemma3_config(cast(WeightsFile, Changed(file, renamed)))


def layers(count: int, window: int) -> KvLayers:
    """As many layers of two KV heads of 16 values, in 16 bits."""
    half = count * 2 * 64 * 16 * 2
    return KvLayers(layers=count, window=window, stride=1, key_bytes=half, value_bytes=half)


def test_without_a_pattern_every_sixth_layer_sees_all_positions(file: GgufFile) -> None:
    config = read(file)
    assert config.slides == ((True,) * 5 + (False,)) * 2
    assert config.kv_layers(F16) == (layers(2, 0), layers(10, 48))


def test_a_pattern_may_be_a_number_or_tell_of_each_layer(file: GgufFile) -> None:
    assert read(file, attention__sliding_window_pattern=4).slides == ((True,) * 3 + (False,)) * 3
    named = [True, False] * 6
    for flags in (named, np.array(named)):  # a real file's are NumPy's
        assert read(file, attention__sliding_window_pattern=flags).slides == tuple(named)


def test_sliding_layers_turn_by_a_base_of_their_own_without_scaling(file: GgufFile) -> None:
    config = read(file, rope__freq_base=1e6, rope__scaling__type="linear", rope__scaling__factor=8.0)
    assert (config.rope.base, config.sliding_rope.base) == (1e6, 10000.0)
    assert config.rope != config.sliding_rope
    assert read(file, rope__freq_base_swa=5000.0).sliding_rope.base == 5000.0


def test_the_scale_of_queries_follows_the_head_but_for_62_layers(file: GgufFile) -> None:
    config = read(file)
    assert config.attention_scale == pytest.approx(config.head_dim**-0.5)
    assert read(file, attention__scale=0.125).attention_scale == 0.125
    large = read(file, block_count=62, attention__key_length=32, attention__value_length=32)
    assert large.attention_scale == pytest.approx((large.hidden / large.heads) ** -0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention__sliding_window": -1}, r"gemma3\.attention\.sliding_window' is not from 0"),
        ({"attention__sliding_window_pattern": np.array([True] * 11)}, "is not a flag for each of 12 layers"),
        ({"attention__sliding_window_pattern": np.array([1] * 12)}, "is not a flag for each of 12 layers"),
        ({"attention__sliding_window_pattern": 0}, "sliding_window_pattern' is not from 1"),
        ({"rope__freq_base_swa": -1.0}, r"gemma3\.rope\.freq_base_swa' is not above 0"),
        ({"rope__freq_base_swa": 0.5}, r"gemma3\.rope\.freq_base_swa' is 0\.5"),
        ({"rope__scaling__attn_factor": 1.5}, "by more than a factor"),
        ({"expert_count": 8}, "mixture of experts"),
    ],
)
def test_what_cannot_be_run_is_refused(file: GgufFile, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read(file, **changes)


def test_no_window_is_none(file: GgufFile) -> None:
    config = read(file, attention__sliding_window=0)
    assert config.slides == (False,) * 12 and config.kv_layers(F16) == (layers(12, 0),)


def test_bases_under_the_names_of_ollama_are_read(file: GgufFile) -> None:
    config = read(file, rope__freq_base=None, rope__global__freq_base=1e6, rope__local__freq_base=5000.0)
    assert (config.rope.base, config.sliding_rope.base) == (1e6, 5000.0)
