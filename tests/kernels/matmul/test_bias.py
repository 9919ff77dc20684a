"""The op that adds a bias to rows: one float32 addition a value, whatever the threads."""

import numpy as np
import pytest

from kernels.build.jit import address
from kernels.matmul.elementwise import BIAS, bias_kernel
from kernels.run.program import Program
from tests.kernels.ops import run_program


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
