"""Rows that stand next to each other in a file, which are read at once."""

import numpy as np
from numpy.typing import NDArray


def row_runs(numbers: NDArray[np.int64]) -> list[tuple[int, int]]:
    """The first row and the length of each run of numbers that follow one another, in order."""
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    return [(int(run[0]), len(run)) for run in runs]
