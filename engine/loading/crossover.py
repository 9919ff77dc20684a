"""The number of rows from which int8 matrix tiles pay, measured at start; it moves no bit (law 1).

A matrix tile takes 16 rows, and costs the moving of its weights and sums whatever their number. How that weighs against
the vector path, which takes 8 rows, differs by processor and weight type.
"""

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np

from engine.loading.timed_matmul import TimedMatmul, TimedMatrix
from engine.weights.files.weights_file import WeightsFile
from kernels.matmul.activations import MATRIX_TILE_WIDTH, NEVER, has_matrix_tiles
from kernels.quant.weight_types import WEIGHT_TYPES, WeightType
from kernels.run.team import Team

ROW_COUNTS = (16, 32, 64, 128)
# A matrix that fits a second-level cache in every type; all rounds together take some milliseconds.
_OUTPUTS, _COLUMNS = 64, 2048
_ROUNDS = 5


def measured_crossover(file: WeightsFile, activations: str, tier: int) -> int:
    """Return the rows from which a model's matmuls take tiles of 16, as Activations has them; on one thread.

    The type that most of the weights have decides for all: matmuls of one input share its packed rows.
    """
    if not has_matrix_tiles(tier):
        return NEVER
    kind = WEIGHT_TYPES["F32"] if activations == "f32" else _weightiest(file)
    return choose_crossover(_measure(kind, tier))


def choose_crossover(seconds: Mapping[int, tuple[float, float]]) -> int:
    """Return the least number of rows from which tiles of 16 win for all that were measured; NEVER where none do.

    seconds: for each number of rows, in any order, the time with tiles of 8 and the time with tiles of 16.
    """
    crossover = NEVER
    for rows, (narrow, wide) in sorted(seconds.items(), reverse=True):
        if wide >= narrow:
            break
        crossover = rows
    return crossover


def _weightiest(file: WeightsFile) -> WeightType:
    """The type of most of the weights in matrices."""
    sizes: Counter[str] = Counter()
    for info in file.tensors.values():
        if len(info.shape) > 1 and info.type in WEIGHT_TYPES:
            sizes[info.type] += math.prod(info.shape)
    name, _ = max(sizes.items(), key=lambda item: item[1], default=("F32", 0))  # the loader refuses what has none
    return WEIGHT_TYPES[name]


def _measure(kind: WeightType, tier: int) -> dict[int, tuple[float, float]]:
    """Time every number of rows both ways, in turn; medians of seconds."""
    team = Team(1)
    try:
        matrix = TimedMatrix(kind, _OUTPUTS, _COLUMNS, 1)
        works = [
            TimedMatmul(team, tier, matrix, rows, crossover=crossover)
            for rows in ROW_COUNTS
            for crossover in (NEVER, MATRIX_TILE_WIDTH)
        ]
        rounds = [[work.run() for work in works] for _ in range(_ROUNDS + 1)]  # the first warms up
    finally:
        team.stop()
    medians = np.median(rounds[1:], axis=0).reshape(-1, 2).tolist()
    return {rows: (narrow, wide) for rows, (narrow, wide) in zip(ROW_COUNTS, medians, strict=True)}
