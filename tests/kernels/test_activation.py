"""silu(gate) * up against its twin, and row by row the same bits."""

import numpy as np
import pytest

from kernels import reference
from kernels.activation import SILU, silu_kernel
from kernels.activations import BLOCK32, FLOATS, Activations
from kernels.jit import address
from kernels.program import Program
from tests.kernels.ops import Float32, run_program, same_bits, unpacked_floats


def silu(gate: Float32, up: Float32, threads: int = 1) -> Float32:
    overwritten, rows = gate.copy(), np.array([len(gate)])
    buffers, program = Activations.allocate(*gate.shape), Program()
    program.emit(
        SILU,
        address(silu_kernel()),
        gate=overwritten.ctypes.data,
        up=up.ctypes.data,
        columns=gate.shape[1],
        rows=rows.ctypes.data,
        packed=buffers.address,
        forms=BLOCK32 | FLOATS,
    )
    run_program(program.finish(), threads)
    result = unpacked_floats(buffers, *gate.shape)
    assert same_bits(overwritten, result)
    return result


def inputs(rows: int, columns: int, scale: float = 3) -> tuple[Float32, Float32]:
    random = np.random.default_rng(rows * columns)
    gate, up = (random.normal(0, scale, (rows, columns)).astype(np.float32) for _ in range(2))
    return gate, up


@pytest.mark.parametrize("columns", [16, 96, 160])
@pytest.mark.parametrize("rows", [1, 3, 8, 13])
def test_rows_are_near_the_slow_twin(rows: int, columns: int) -> None:
    gate, up = inputs(rows, columns)
    np.testing.assert_allclose(silu(gate, up), reference.silu_times_up(gate, up), rtol=1e-6, atol=0)


def test_large_gates_of_either_sign_are_right() -> None:
    gate = np.zeros((1, 16), np.float32)
    gate[0, :10] = 0, -0.0, 50, -50, 87, -87, 88, -88, 1e4, -1e4
    up = np.full_like(gate, 2)
    np.testing.assert_allclose(silu(gate, up), reference.silu_times_up(gate, up), rtol=1e-6, atol=0)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_row_has_the_same_bits_alone_and_among_others(threads: int) -> None:
    gate, up = inputs(13, 96)
    alone = [silu(gate[row : row + 1], up[row : row + 1]) for row in range(13)]
    assert same_bits(silu(gate, up, threads), np.concatenate(alone))
