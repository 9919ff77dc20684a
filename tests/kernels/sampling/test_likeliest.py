"""The op behind the head against the sampler's argmax, and against NumPy."""

import math

import numpy as np
import pytest

from kernels.build.jit import address
from kernels.run.program import Program
from kernels.sampling.logits import LIKELIEST, likeliest_kernel
from kernels.sampling.sampling import BLOCK, argmax
from tests.kernels.ops import Float32, run_program

NONE_FOUND = -99


def likeliest(logits: Float32, vocabulary: int, rows: int, threads: int = 1) -> list[int]:
    """Run the op on the first `rows` rows of [rows, stride]; what it leaves alone is NONE_FOUND."""
    tokens, count, program = np.full(len(logits), NONE_FOUND), np.array([rows]), Program()
    program.emit(
        LIKELIEST,
        address(likeliest_kernel()),
        logits=logits.ctypes.data,
        stride=logits.shape[1],
        vocabulary=vocabulary,
        rows=count.ctypes.data,
        tokens=tokens.ctypes.data,
    )
    run_program(program.finish(), threads)
    return list(tokens.tolist())


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("vocabulary", [1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 1000, 49152])
def test_each_row_s_largest_logit_is_found_whatever_lies_behind_the_vocabulary(vocabulary: int, threads: int) -> None:
    rng = np.random.default_rng(vocabulary)
    logits = rng.standard_normal((9, -(-vocabulary // 16) * 16)).astype(np.float32)
    logits[:, vocabulary:] = 100
    found = likeliest(logits, vocabulary, 7, threads)
    assert found == [*logits[:7, :vocabulary].argmax(axis=1).tolist(), NONE_FOUND, NONE_FOUND]


def test_ties_infinities_and_what_is_no_number_are_as_the_sampler_has_them() -> None:
    rows = np.random.default_rng(1).integers(-3, 3, (40, 400)).astype(np.float32)  # of many ties
    rows[1::4, ::3] = math.nan
    rows[2::4, ::2] = -math.inf
    rows[3::4, 100:] = [[0.0, -0.0] * 150]
    rows[0], rows[1], rows[2, 399] = math.nan, -math.inf, math.inf
    expected = [argmax(row) for row in rows]
    assert expected[:3] == [-1, -1, 399]
    assert likeliest(rows, 400, 40) == expected
    assert expected[4:] == [int(np.nanargmax(row)) for row in rows[4:]]
