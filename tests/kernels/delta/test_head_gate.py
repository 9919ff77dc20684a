"""Gated heads against float64, with and without a norm, and row by row the same bits."""

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.build.jit import address
from kernels.delta.head_gate import HEAD_GATE, head_gate_kernel, task_columns
from kernels.matmul.activations import BLOCK32, BLOCK256, FLOATS, Activations
from kernels.run.program import Program
from tests.kernels.ops import Float32, packed, run_program, same_bits, unpacked_floats

EPSILON = 1e-6


def gated(x: Float32, gate: Float32, weight: Float32 | None, *, threads: int = 1, forms: int = FLOATS) -> Activations:
    """Gate heads, [rows, heads, head_dim]; each head's gate is preceded by as many other numbers."""
    count, heads, dim = x.shape
    values = x.reshape(count, -1).copy()
    gates = np.stack([np.full_like(gate, np.nan), gate], axis=2)
    rows, program = np.array([count]), Program()
    buffers = Activations.allocate(*values.shape)
    program.emit(
        HEAD_GATE,
        address(head_gate_kernel()),
        source=values.ctypes.data,
        gate=gates.ctypes.data + dim * 4,
        gate_row_bytes=heads * dim * 8,
        gate_head_bytes=dim * 8,
        head_dim=dim,
        weight=0 if weight is None else weight.ctypes.data,
        epsilon=EPSILON,
        columns=values.shape[1],
        task_columns=task_columns(dim),
        rows=rows.ctypes.data,
        packed=buffers.address,
        forms=forms,
    )
    run_program(program.finish(), threads)
    return buffers


def expected(x: Float32, gate: Float32, weight: Float32 | None) -> NDArray[np.float64]:
    y, g = x.astype(np.float64), gate.astype(np.float64)
    if weight is None:
        return y / (1 + np.exp(-g))
    y = y / np.sqrt((y * y).mean(-1, keepdims=True) + EPSILON) * weight
    return y * g / (1 + np.exp(-g))


def inputs(rows: int, heads: int, dim: int) -> tuple[Float32, Float32, Float32]:
    random = np.random.default_rng(rows * heads)
    x, gate = random.standard_normal((2, rows, heads, dim), np.float32)
    return x, gate * 4, random.standard_normal(dim, np.float32)


@pytest.mark.parametrize("has_norm", [False, True])
@pytest.mark.parametrize(("heads", "dim"), [(4, 16), (8, 128), (5, 64), (3, 96)])
@pytest.mark.parametrize("rows", [1, 3, 13])
def test_gated_heads_are_near_the_formulas(rows: int, heads: int, dim: int, has_norm: bool) -> None:
    x, gate, weight = inputs(rows, heads, dim)
    chosen = weight if has_norm else None
    found = unpacked_floats(gated(x, gate, chosen), rows, heads * dim)
    np.testing.assert_allclose(found, expected(x, gate, chosen).reshape(rows, -1), rtol=2e-6, atol=1e-12)


@pytest.mark.parametrize("has_norm", [False, True])
def test_they_are_packed_as_the_packing_op_packs_them(has_norm: bool) -> None:
    x, gate, weight = inputs(11, 6, 128)
    forms = BLOCK32 | BLOCK256 | FLOATS
    found = gated(x, gate, weight if has_norm else None, forms=forms, threads=3)
    plain = packed(unpacked_floats(found, 11, 768), forms)
    assert all(np.array_equal(found.buffers[name], plain.buffers[name]) for name in found.buffers)


@pytest.mark.parametrize("has_norm", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_row_has_the_same_bits_alone_and_among_others(threads: int, has_norm: bool) -> None:
    x, gate, weight = inputs(13, 8, 128)
    chosen = weight if has_norm else None
    together = unpacked_floats(gated(x, gate, chosen, threads=threads), 13, 1024)
    alone = [unpacked_floats(gated(x[i : i + 1], gate[i : i + 1], chosen), 1, 1024) for i in range(13)]
    assert same_bits(together, np.concatenate(alone))


@pytest.mark.parametrize("has_norm", [False, True])
def test_a_gate_that_is_no_number_shows(has_norm: bool) -> None:
    x, gate, weight = inputs(2, 4, 16)
    gate[1, 2, 3] = np.nan
    found = unpacked_floats(gated(x, gate, weight if has_norm else None), 2, 64)
    assert np.argwhere(np.isnan(found)).tolist() == [[1, 2 * 16 + 3]]
