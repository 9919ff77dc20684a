"""Run as a program: prints the bits of a model's logits as a processor computes them that has SSE2 and no more.

    python -m tests.engine.loading.old_processor FILE

Numba takes its target from the environment (NUMBA_CPU_NAME, NUMBA_CPU_FEATURES), which must say so too.
"""

import sys
from pathlib import Path
from unittest import mock

from kernels.machine import cpu

TARGET = {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": "+sse2"}
STEPS = (5, 1, 1)  # rows


def logit_bits(path: Path) -> str:
    """The logits of every row of a prompt in a few steps, in hexadecimal digits."""
    from engine.run.runner_protocol import SequenceRows
    from tests.engine.runners import loaded

    told, position = "", 0
    with loaded(path, rows=8) as runner:
        for rows in STEPS:
            tokens = [7 + (position + row) * 11 % 200 for row in range(rows)]
            told += runner.run([SequenceRows(tokens, position, ([0],), len(tokens))]).tobytes().hex()
            position += rows
    return told


if __name__ == "__main__":
    import numba  # noqa: F401, before kernels: that makes them compile here

    from kernels.simd.tiers import supported_tiers

    with mock.patch.object(cpu, "_first_processor", lambda: {"flags": "sse2"}):
        assert supported_tiers() == ("generic",)
        print(logit_bits(Path(sys.argv[1])))
