"""Ops on single rows against their twins: RMSNorm, adding a bias, and the activation functions times up."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernels.build.jit import address, njit_inline
from kernels.matmul.activations import BLOCK32, FLOATS, Activations
from kernels.matmul.row_ops import ADD_NORM, BIAS, GELU, NORM, SILU, activate, add_norm_kernel, bias_kernel, norm_kernel
from kernels.run.program import Program
from tests.kernels import reference
from tests.kernels.ops import Float32, packed, run_program, same_bits, unpacked_floats

EPSILON = 1e-5


def norm(
    x: Float32, weight: Float32, *, gather: list[int] | None = None, threads: int = 1, plain: Float32 | None = None
) -> Activations:
    """Run the op; returns the packed result, and writes plain rows to `plain`."""
    taken = np.array(gather if gather is not None else range(len(x)))
    rows, scratch = np.array([len(taken)]), np.zeros((threads, x.shape[1]), np.float32)
    buffers, program = Activations.allocate(len(taken), x.shape[1]), Program()
    program.emit(
        NORM,
        address(norm_kernel()),
        source=x.ctypes.data,
        gather=taken.ctypes.data if gather is not None else 0,
        weight=weight.ctypes.data,
        epsilon=EPSILON,
        columns=x.shape[1],
        rows=rows.ctypes.data,
        scratch=scratch.ctypes.data,
        output=0 if plain is None else plain.ctypes.data,
        output_stride=x.shape[1],
        packed=buffers.address,
        forms=BLOCK32 | FLOATS,
    )
    run_program(program.finish(), threads)
    return buffers


def inputs(rows: int, columns: int) -> tuple[Float32, Float32]:
    random = np.random.default_rng(rows * columns)
    x = random.standard_normal((rows, columns)).astype(np.float32)
    return x, random.standard_normal(columns).astype(np.float32)


@pytest.mark.parametrize("columns", [16, 48, 64, 576])
@pytest.mark.parametrize("rows", [1, 3, 8, 13])
def test_rows_are_near_the_slow_twin(rows: int, columns: int) -> None:
    x, weight = inputs(rows, columns)
    result = unpacked_floats(norm(x, weight), rows, columns)
    np.testing.assert_allclose(result, reference.rms_norm(x, weight, EPSILON), rtol=1e-6, atol=0)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-3, 1e3, 1e15])
def test_small_and_large_rows_are_near_the_slow_twin(scale: float) -> None:
    x, weight = inputs(4, 64)
    x *= np.float32(scale)
    result = unpacked_floats(norm(x, weight), 4, 64)
    np.testing.assert_allclose(result, reference.rms_norm(x, weight, EPSILON), rtol=1e-6, atol=1e-37)


def test_the_result_is_packed_as_the_packing_op_packs_it() -> None:
    x, weight = inputs(11, 96)
    normed = norm(x, weight)
    plain = packed(unpacked_floats(normed, 11, 96))
    assert all(np.array_equal(normed.buffers[name], plain.buffers[name]) for name in ("quads", "side"))


def test_gathered_rows_are_the_rows_named() -> None:
    x, weight = inputs(9, 64)
    every, gather = unpacked_floats(norm(x, weight), 9, 64), [8, 0, 3]
    assert same_bits(unpacked_floats(norm(x, weight, gather=gather), 3, 64), every[gather])


@pytest.mark.parametrize("gather", [None, [8, 0, 3]])
def test_plain_rows_are_the_packed_ones(gather: list[int] | None) -> None:
    x, weight = inputs(9, 64)
    plain = np.full((3 if gather else 9, 64), np.nan, np.float32)
    buffers, without = norm(x, weight, gather=gather, threads=2, plain=plain), norm(x, weight, gather=gather)
    assert same_bits(plain, unpacked_floats(buffers, *plain.shape))
    assert all(np.array_equal(buffers.buffers[name], without.buffers[name]) for name in buffers.buffers)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_row_has_the_same_bits_alone_and_among_others(threads: int) -> None:
    x, weight = inputs(13, 96)
    together = unpacked_floats(norm(x, weight, threads=threads), 13, 96)
    alone = [unpacked_floats(norm(x[row : row + 1], weight), 1, 96) for row in range(13)]
    assert same_bits(together, np.concatenate(alone))


def add_norm(x: Float32, target: Float32, weight: Float32, threads: int = 1) -> Float32:
    """target + norm(x), by the op."""
    source, result, rows, program = x.copy(), target.copy(), np.array([len(x)]), Program()
    program.emit(
        ADD_NORM,
        address(add_norm_kernel()),
        source=source.ctypes.data,
        target=result.ctypes.data,
        weight=weight.ctypes.data,
        epsilon=EPSILON,
        columns=x.shape[1],
        rows=rows.ctypes.data,
    )
    run_program(program.finish(), threads)
    return result


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("columns", [16, 48, 576])
def test_added_norms_are_those_of_the_norm_op(columns: int, threads: int) -> None:
    x, weight = inputs(13, columns)
    target, plain = inputs(7, columns)[0].repeat(2, axis=0)[:13], np.zeros_like(x)
    norm(x, weight, plain=plain)
    assert same_bits(add_norm(x, target, weight, threads), target + plain)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("columns", [16, 80])
@pytest.mark.parametrize("rows", [0, 1, 13])
def test_a_bias_is_added_to_each_row_and_to_no_other(rows: int, columns: int, threads: int) -> None:
    random = np.random.default_rng(rows)
    values, bias = random.standard_normal((14, columns), np.float32), random.standard_normal(columns, np.float32)
    expected = values.copy()
    expected[:rows] += bias
    count, program = np.array([rows]), Program()
    program.emit(
        BIAS,
        address(bias_kernel()),
        target=values.ctypes.data,
        bias=bias.ctypes.data,
        columns=columns,
        rows=count.ctypes.data,
    )
    run_program(program.finish(), threads)
    assert values.tobytes() == expected.tobytes()


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
