"""What the values of the emitter let nobody do, and shapes of attention that no kernel has yet."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.families.config import TransformerConfig
from engine.families.emit.attention_state import AttentionShape, KvGroupState, plain_kv_layers
from engine.families.emit.emitter import Emitter, add_norm, norm, pack
from engine.families.emit.matmul import matmul
from engine.families.emit.run_state import Capacity
from engine.families.registry import read_blueprint
from engine.families.transformer import allocate_state
from engine.weights.load import WeightLoader
from engine.weights.open_weights import open_weights
from kernels.attention.attention import PartPlan
from kernels.attention.kv_cache import F16
from kernels.matmul.activations import NEVER
from tests.tiny.models import write_tiny_llama

NORM, QUERY = "blk.0.attn_norm.weight", "blk.0.attn_q.weight"


@pytest.fixture
def emit(tmp_path: Path) -> Iterator[Emitter]:
    with open_weights(write_tiny_llama(tmp_path / "tiny.gguf")) as file:
        config: TransformerConfig = read_blueprint(file).config
        capacity = Capacity(max_rows=4, max_logit_rows=4, n_blocks=(2,), context_length=128, threads=1, crossover=NEVER)
        state = allocate_state(config, capacity)
        with WeightLoader(file, activations="f32", progress=lambda done: None) as weights:
            yield Emitter(weights=weights, state=state, capacity=capacity, tier=0)


def test_rows_that_another_op_has_packed_over_are_refused(emit: Emitter) -> None:
    packed = norm(emit, emit.stream, NORM, 1e-5)
    query = emit.state.new_rows("query", emit.stream.width)
    pack(emit, emit.stream)
    with pytest.raises(AssertionError, match="another op has packed over these rows"):
        matmul(emit, packed, QUERY, query)


def test_a_matmul_gives_as_many_rows_as_it_takes(emit: Emitter) -> None:
    packed = norm(emit, emit.logit_rows, NORM, 1e-5)
    with pytest.raises(AssertionError, match="a matmul gives as many rows as it takes"):
        matmul(emit, packed, QUERY, emit.state.new_rows("query", emit.stream.width))


def test_a_norm_is_as_wide_as_its_rows(emit: Emitter) -> None:
    latent = emit.state.new_rows("latent", 16)
    with pytest.raises(Exception, match=r"attn_norm\.weight has shape \(\d+,\)"):
        norm(emit, latent, NORM, 1e-5)
    emit.weights.vector = lambda name, length: np.ones(length, np.float32)  # type: ignore[method-assign]
    packed = norm(emit, latent, "latent.weight", 1e-5)
    assert (packed.columns, packed.record["columns"][0]) == (16, 16)
    add_norm(emit, latent, "latent.weight", 1e-5, emit.state.new_rows("sum", 16))


def test_keys_and_values_may_be_of_different_sizes() -> None:
    shape = AttentionShape(heads=8, kv_heads=2, key_dim=64, value_dim=32, scale=1.0)
    (layers,) = plain_kv_layers([shape] * 3, F16)
    assert (layers.key_bytes, layers.value_bytes) == (3 * 2 * 64 * 64 * 2, 3 * 2 * 64 * 32 * 2)
    with pytest.raises(AssertionError, match="no kernel has keys and values of different lengths"):
        _ = shape.head_dim


def test_one_vector_may_be_both_key_and_value() -> None:
    plan = PartPlan(group=8, kv_heads=1, head_dim=64, threads=1, partial_floats=0)
    group = KvGroupState.allocate(plan, n_blocks=3, max_rows=4)
    cache = group.add_layer(key_bytes=640, value_bytes=0)
    assert (cache.keys.shape, cache.values.nbytes, group.block_bytes) == ((3, 640), 0, 640)
    assert b"".join(array.tobytes() for array in group.arrays_of(1)) == bytes(640)
