"""act(gate) * up against its twins in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernels.build.jit import njit_inline
from kernels.matmul.elementwise import GELU, SILU, activate
from tests.kernels import reference
from tests.kernels.ops import Float32

TWINS = {SILU: reference.silu_times_up, GELU: reference.gelu_times_up}
ACTIVATIONS = pytest.mark.parametrize("activation", TWINS)


@njit_inline
def _activate(activation: Any, gate: Any, up: Any, columns: Any) -> None:
    activate(activation, np.uintp(gate), np.uintp(up), columns)


def activated(activation: int, gate: Float32, up: Float32) -> Float32:
    overwritten = gate.copy()
    _activate(activation, overwritten.ctypes.data, up.ctypes.data, gate.size)
    return overwritten


def relative_error(activation: int, gate: Float32) -> Float32:
    twin: Callable[[Float32, Float32], Any] = TWINS[activation]
    up = np.random.default_rng(2).standard_normal(gate.shape).astype(np.float32)
    exact = twin(gate, up)
    return np.abs(activated(activation, gate, up) - exact) / np.maximum(np.abs(exact), 1e-35)


@ACTIVATIONS
@pytest.mark.parametrize("scale", [1e-3, 0.5, 3])
def test_values_are_near_the_slow_twin(activation: int, scale: float) -> None:
    gate = np.random.default_rng(1).normal(0, scale, 10_000 // 16 * 16).astype(np.float32)
    # GELU rounds an exponent of up to 88, so its tail is worth less.
    assert relative_error(activation, gate)[gate > -3].max() < 2e-6
    assert relative_error(activation, gate).max() < 2e-5


def test_gelu_is_the_approximation_by_tanh() -> None:
    gate = np.linspace(-4, 4, 160, dtype=np.float32)
    wide = gate.astype(np.float64)
    expected = wide / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
    np.testing.assert_allclose(activated(GELU, gate, np.ones_like(gate)), expected, rtol=0, atol=1e-6)


@ACTIVATIONS
def test_large_gates_of_either_sign_are_right(activation: int) -> None:
    gate = np.zeros(16, np.float32)
    gate[:12] = 0, -0.0, 50, -50, 87, -87, 88, -88, 1e4, -1e4, 1e30, -1e30
    result = activated(activation, gate, np.full_like(gate, 2))
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(result, TWINS[activation](gate, np.full_like(gate, 2)), rtol=1e-6, atol=1e-33)


@ACTIVATIONS
def test_what_is_no_number_stays_none(activation: int) -> None:
    gate, up = np.ones(16, np.float32), np.ones(16, np.float32)
    gate[3], up[9] = np.nan, np.nan
    assert np.flatnonzero(np.isnan(activated(activation, gate, up))).tolist() == [3, 9]
