"""The recurrence of Gated DeltaNet against its formulas in float64, and its bits, however the rows come."""

import numpy as np
import pytest

from kernels.delta.recurrent import DeltaShape
from tests.kernels.delta.delta_ops import DeltaLayer, Inputs, Rows
from tests.kernels.ops import TIERS, Float32, same_bits

SHAPES = {
    "the real heads, fewer of them": DeltaShape(key_heads=2, value_heads=4, key_dim=128, value_dim=128),
    "one block of columns": DeltaShape(key_heads=2, value_heads=4, key_dim=16, value_dim=16),
    "parts of 32 columns": DeltaShape(key_heads=1, value_heads=3, key_dim=32, value_dim=96),
    "as many V heads as K heads, more than a vector": DeltaShape(
        key_heads=17, value_heads=17, key_dim=16, value_dim=64
    ),
}
TOKENS = 21


@pytest.fixture(params=SHAPES)
def layer(request: pytest.FixtureRequest) -> DeltaLayer:
    return DeltaLayer(SHAPES[request.param])


def feed(layer: DeltaLayer, inputs: Inputs, chunk: int, *, slot: int = 0, tier: str = TIERS[0]) -> Float32:
    """Feed a whole sequence alone, `chunk` rows a step."""
    outputs = [
        layer.run([Rows(inputs[at : at + chunk], slot, is_first=at == 0)], tier=tier)[0]
        for at in range(0, len(inputs), chunk)
    ]
    return np.concatenate(outputs)


def test_it_is_near_the_formulas(layer: DeltaLayer) -> None:
    inputs = layer.inputs(TOKENS)
    output, state = layer.reference(inputs)
    assert np.abs(feed(layer, inputs, 8) - output).max() < 1e-5 * np.abs(output).max()
    assert np.abs(layer.matrices(0) - state).max() < 1e-5 * np.abs(state).max()


def test_v_heads_may_share_k_heads_side_by_side() -> None:
    layer = DeltaLayer(SHAPES["the real heads, fewer of them"], is_tiled=False)
    inputs = layer.inputs(TOKENS)
    output, _ = layer.reference(inputs)
    assert np.abs(feed(layer, inputs, 8) - output).max() < 1e-5 * np.abs(output).max()


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("chunk", [1, 2, 5, TOKENS])
def test_rows_a_step_and_tiers_change_no_bit(layer: DeltaLayer, chunk: int, tier: str) -> None:
    inputs = layer.inputs(TOKENS)
    expected, state = feed(layer, inputs, TOKENS), layer.states[0].copy()
    assert same_bits(feed(layer, inputs, chunk, slot=1, tier=tier), expected)
    assert same_bits(layer.states[1], state)


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_blocks_taken_together_change_no_bit(blocks: int) -> None:
    layer = DeltaLayer(SHAPES["the real heads, fewer of them"])
    inputs = layer.inputs(TOKENS)
    expected, state = feed(layer, inputs, TOKENS), layer.states[0].copy()
    assert same_bits(layer.run([Rows(inputs, 1, is_first=True)], blocks=blocks)[0], expected)
    assert same_bits(layer.states[1], state)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_other_sequences_and_threads_change_no_bit(layer: DeltaLayer, threads: int) -> None:
    first, second, third = layer.inputs(9), layer.inputs(4), layer.inputs(7)
    expected = [feed(layer, inputs, 3, slot=slot) for slot, inputs in enumerate((first, second, third))]
    states = layer.states.copy()
    layer.states[:] = np.nan
    begun = layer.run([Rows(third[:2], 2, is_first=True), Rows(first[:5], 0, is_first=True)], threads=threads)
    ended = layer.run([Rows(first[5:], 0), Rows(second, 1, is_first=True), Rows(third[2:], 2)], threads=threads)
    together = [np.concatenate([begun[1], ended[0]]), ended[1], np.concatenate([begun[0], ended[2]])]
    assert all(same_bits(a, b) for a, b in zip(together, expected, strict=True))
    assert same_bits(layer.states, states)


@pytest.mark.parametrize("kept", [0, 1, 3, 4])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("start", [0, 2, 6])
def test_rows_that_may_be_taken_back_leave_what_was_kept_of_them(
    layer: DeltaLayer, start: int, kept: int, threads: int
) -> None:
    inputs, drafts = layer.inputs(TOKENS), layer.inputs(TOKENS)
    expected = feed(layer, inputs, TOKENS)
    state = layer.states[0].copy()
    if start:
        layer.run([Rows(inputs[:start], 1, is_first=True)])
    # Two steps of which some rows are kept: a wrong draft follows the right ones.
    tried = joined(inputs[start : start + kept], drafts[:4])[:4]
    first = layer.run([Rows(tried, 1, is_first=start == 0, trail=2)], threads=threads)[0]
    assert same_bits(first[:kept], expected[start : start + kept])
    done = start + kept
    again = joined(inputs[done : done + 2], drafts[:2])
    second = layer.run([Rows(again, 1, pending=kept, pending_trail=2, trail=3)], threads=threads)[0]
    assert same_bits(second[:2], expected[done : done + 2])
    rest = layer.run([Rows(inputs[done + 2 :], 1, pending=2, pending_trail=3)], threads=threads)[0]
    assert same_bits(rest, expected[done + 2 :])
    assert same_bits(layer.states[1], state)


def test_a_span_without_rows_settles_what_is_pending(layer: DeltaLayer) -> None:
    inputs = layer.inputs(6)
    feed(layer, inputs, 6)
    layer.run([Rows(inputs[:2], 1, is_first=True)])
    layer.run([Rows(inputs[2:], 1, trail=2)])
    layer.run([Rows(inputs[:0], 1, pending=4, pending_trail=2)])
    assert same_bits(layer.states[1], layer.states[0])


@pytest.mark.parametrize("which", ["raw", "a", "b"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_shows(layer: DeltaLayer, which: str, value: float) -> None:
    inputs = layer.inputs(3)
    getattr(inputs, which)[1, 0] = value
    output = feed(layer, inputs, 3)
    assert np.isfinite(output[0]).all() and not np.isfinite(output[1]).all()


def joined(first: Inputs, second: Inputs) -> Inputs:
    return Inputs(*(np.concatenate([getattr(first, n), getattr(second, n)]) for n in ("raw", "a", "b")))
