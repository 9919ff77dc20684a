"""The promise for mixtures of experts: the same bits however the work is cut up, and those of dense layers."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from engine.loading.runner import Runner
from kernels.simd.tiers import supported_tiers
from tests.engine.loading.test_determinism import add_outliers, feed_together, shuffled_tables
from tests.engine.runners import blocks_for, feed, loaded, random_tokens, same_bits
from tests.tiny.mixture import write_tiny_mixture
from tests.tiny.models import write_out

Float32 = NDArray[np.float32]
TOKENS = 150
TIERS = supported_tiers()
K_QUANTS = {
    "attn_q": "Q8_0",
    "attn_output": "Q8_0",
    "ffn_gate_exps": "Q4_K",
    "ffn_up_exps": "Q4_K",
    "ffn_down_exps": "Q5_K",
}
UNLIKE = {"ffn_gate_exps": "Q6_K", "ffn_up_exps": "Q8_0", "ffn_down_exps": "Q6_K", "ffn_gate_inp": "Q8_0"}
FUSED = {"ffn_gate_up_exps": "Q4_K", "ffn_down_exps": "Q8_0", "ffn_gate_inp": "BF16"}
WIDE: dict[str, Any] = {"hidden": 256, "width": 256}
MODELS: dict[str, dict[str, Any]] = {
    "k-quants": {**WIDE, "experts": 20, "active": 4, "types": K_QUANTS},
    "gate unlike up, and a quantized router": {**WIDE, "types": UNLIKE},
    "gate and up in one tensor": {"hidden": 256, "width": 96, "types": FUSED, "fused": True},
    "more experts than rows": {"experts": 100, "active": 1, "types": "Q4_0", "vocab": 320},
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_tiny_mixture(tmp_path_factory.mktemp("model") / "mixture.gguf", seed=5, **MODELS[request.param])
    add_outliers(path)
    return path


@pytest.fixture(scope="module")
def tokens(runner: Runner) -> list[int]:
    return random_tokens(runner, TOKENS, seed=1)


@pytest.mark.parametrize(("threads", "chunk"), [(1, 512), (2, 1), (2, 64), (3, 7)])
@pytest.mark.parametrize("tier", TIERS)
def test_tiers_threads_and_chunks_change_no_bit(
    model: Path, tokens: list[int], expected: Float32, tier: str, threads: int, chunk: int
) -> None:
    with loaded(model, isa=tier, threads=threads, rows=chunk) as other:
        assert same_bits(feed(other, tokens, range(blocks_for(TOKENS)), chunk), expected)


@pytest.mark.parametrize("tier", TIERS)
def test_the_other_sequences_of_a_step_change_no_bit(
    model: Path, tokens: list[int], expected: Float32, tier: str
) -> None:
    random = np.random.default_rng(5)
    with loaded(model, isa=tier, threads=2) as other:
        lengths = random.integers(3, 150, 7).tolist()
        prompts = [tokens, *(random_tokens(other, length, seed=200 + length) for length in lengths)]
        together = feed_together(other, prompts, shuffled_tables(other, prompts, random), random)
    assert same_bits(together[0], expected)


def as_dense(mixture: Path, path: Path, *, up_factor: float = 1.0) -> Path:
    """The qwen3 model whose feed-forward layers are the only expert of a mixture, with up times a factor."""
    reader = gguf.GGUFReader(mixture)
    writer = gguf.GGUFWriter(path, "qwen3")
    for key, field in reader.fields.items():
        name = key.replace("qwen3moe.", "qwen3.")
        if key == "qwen3moe.feed_forward_length":
            writer.add_feed_forward_length(reader.fields["qwen3moe.expert_feed_forward_length"].contents())
        elif not key.startswith(("GGUF.", "general.")) and ".expert_" not in key:
            value_type, *rest = field.types
            writer.add_key_value(name, field.contents(), value_type, rest[-1] if rest else None)
    for tensor in reader.tensors:
        data = tensor.data[0] if tensor.name.endswith("_exps.weight") else tensor.data
        if up_factor != 1 and ".ffn_up_exps" in tensor.name:
            data = data * np.float32(up_factor)
        if ".ffn_gate_inp." not in tensor.name:
            writer.add_tensor(tensor.name.replace("_exps", ""), data, raw_dtype=tensor.tensor_type)
    write_out(writer)
    return path


@pytest.mark.parametrize("options", [{}, {"types": {"ffn_gate_exps": "Q4_0", "ffn_up_exps": "Q5_1"}}])
def test_a_mixture_of_one_expert_has_the_bits_of_a_dense_model(tmp_path: Path, options: dict[str, Any]) -> None:
    mixture = write_tiny_mixture(tmp_path / "mixture.gguf", experts=1, active=1, **options)
    assert same_bits(logits_of(mixture), logits_of(as_dense(mixture, tmp_path / "dense.gguf")))


def test_the_weights_of_experts_are_scaled_as_the_file_says(tmp_path: Path) -> None:
    scale = {"qwen3moe.expert_weights_scale": 2.0}
    mixture = write_tiny_mixture(tmp_path / "mixture.gguf", experts=1, active=1, metadata=scale)
    dense = as_dense(mixture, tmp_path / "dense.gguf", up_factor=2)
    assert same_bits(logits_of(mixture, activations="f32"), logits_of(dense, activations="f32"))


def test_weights_that_are_not_divided_by_their_sum_are_smaller(tmp_path: Path) -> None:
    """With equal logits of all experts, each weight is 1 / experts: for 4 of 8, half of what they are when divided."""
    files = [
        write_tiny_mixture(tmp_path / f"{norm}.gguf", experts=8, active=4, metadata=metadata, silent_router=True)
        for norm, metadata in (
            ("halved", {"qwen3moe.expert_weights_scale": 0.5}),
            ("plain", {"qwen3moe.expert_weights_norm": False}),
        )
    ]
    assert same_bits(*(logits_of(file) for file in files))


def logits_of(path: Path, activations: str = "int8") -> Float32:
    with loaded(path, activations=activations) as runner:
        return feed(runner, random_tokens(runner, 40, seed=3), [0], chunk=512)
