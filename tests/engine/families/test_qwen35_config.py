"""What a qwen35 file tells about itself, and the one line where it cannot be true or cannot be run."""

from pathlib import Path

import pytest

from engine.errors import ModelFileError, OctavoError, UnsupportedModelError
from engine.families.qwen35 import Qwen35Config, read_qwen35_config
from engine.weights.open_weights import open_weights
from kernels.attention.kv_cache import F16
from kernels.delta.recurrent import DeltaShape
from tests.tiny.qwen35 import write_tiny_qwen35


def read(path: Path, metadata: dict[str, object] | None = None, **options: object) -> Qwen35Config:
    write_tiny_qwen35(path / "tiny.gguf", metadata=metadata or {}, **options)  # type: ignore[arg-type]
    with open_weights(path / "tiny.gguf") as file:
        return read_qwen35_config(file)


def test_the_layers_of_a_file_are_the_trunk_and_the_draft(tmp_path: Path) -> None:
    config = read(tmp_path)
    assert (config.layers, config.draft_layers, config.recurrent) == (4, 1, (True, False, True, False))
    assert config.delta == DeltaShape(key_heads=2, value_heads=4, key_dim=16, value_dim=16)
    assert config.kv_layers(F16)[0].layers == 3
    assert config.state_bytes == 2 * 4 * (4 * 16 * 16 + 3 * 8 * 16)


def test_a_dense_file_has_no_experts(tmp_path: Path) -> None:
    config = read(tmp_path, experts=0, draft=False)
    assert (config.mixture, config.ffn, config.draft_layers) == (None, 32, 0)


WRONG: dict[str, tuple[dict[str, object], type[OctavoError], str]] = {
    "two drafts": ({"nextn_predict_layers": 2}, UnsupportedModelError, "2 draft layers"),
    "no trunk": ({"nextn_predict_layers": 1, "block_count": 1}, ModelFileError, "all of its 1 blocks"),
    "heads that are not shared evenly": ({"ssm.group_count": 3}, ModelFileError, "contradict each other"),
    "another inner size": ({"ssm.inner_size": 63}, ModelFileError, "contradict each other"),
    "small heads": ({"ssm.state_size": 8, "ssm.inner_size": 32}, UnsupportedModelError, "multiple of 16"),
    "longer convolutions": ({"ssm.conv_kernel": 5}, UnsupportedModelError, "5 taps"),
    "attention only": ({"full_attention_interval": 1}, UnsupportedModelError, "of one kind only"),
    "no attention": ({"full_attention_interval": 9}, UnsupportedModelError, "of one kind only"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_run_is_told_in_a_line(tmp_path: Path, case: str) -> None:
    metadata, error, message = WRONG[case]
    with pytest.raises(error, match=message) as caught:
        read(tmp_path, metadata)
    assert "\n" not in str(caught.value)
