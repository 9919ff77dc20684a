"""RMSNorm against its twin, with gathered rows, added to others, and row by row the same bits."""

import numpy as np
import pytest

from kernels.build.jit import address
from kernels.matmul.activations import BLOCK32, FLOATS, Activations
from kernels.matmul.norm import ADD_NORM, NORM, add_norm_kernel, norm_kernel
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
