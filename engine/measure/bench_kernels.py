"""Measures the matmul of every weight type alone, against what the machine can read and what it can multiply.

A measurement goes over copies of one matrix, one after the other, that together are four times the last-level cache, so
that weights come from memory as in a step of a large model. Each round measures the machine's limits and every number
of rows in turn, where there are matrix tiles both without and with them; the peak is the best of the rounds, all else
their median.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.errors import OctavoError
from engine.loading.load_runner import choose_isa, choose_threads
from engine.loading.timed_matmul import TimedMatmul, TimedMatrix
from engine.machine import last_level_cache
from kernels.matmul.activations import MATRIX_TILE_WIDTH, TILE_WIDTHS, has_matrix_tiles
from kernels.quant.weight_types import WEIGHT_TYPES, WeightType
from kernels.run.probes import PeakProbe, ReadProbe
from kernels.run.team import Team
from kernels.simd.tiers import TIERS_BY_NAME

_LEAST_BYTES = 256 << 20
Line = dict[str, object]
Work = tuple[int, int]  # rows, and those of the widest tile


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOptions:
    """What to measure."""

    types: Sequence[str] | None  # None: all
    rows: Sequence[int]
    shapes: Sequence[tuple[int, int]]  # outputs, columns
    repeats: int
    megabytes: int | None  # of weights that one measurement reads; None: by the cache
    threads: int | None
    isa: str | None


def bench_kernels(options: KernelOptions) -> Iterator[Line]:
    """Yield a line for each type, shape and number of rows; on a tier with matrix tiles two: without and with them.

    `tile` is how many rows the widest tiles may take: 8, or 16 for matrix tiles, which take no fewer.
    GB/s count packed weights, GOP/s 2 * rows * outputs * columns; `of_read` and `of_peak` are shares of the read
    bandwidth and of the peak of the tier's dot product, or of f32 fma, in the same rounds.
    """
    kinds = _kinds(options.types)
    isa, team = choose_isa(options.isa), Team(choose_threads(options.threads))
    common: Line = {"engine": "octavo", "what": "kernel", "threads": team.threads, "isa": isa}
    weight_bytes = options.megabytes << 20 if options.megabytes else max(_LEAST_BYTES, 4 * last_level_cache())
    try:
        read = ReadProbe(team, max(1, weight_bytes >> 20))
        for kind in kinds:
            peak = PeakProbe(team, TIERS_BY_NAME[isa].number, floats=kind.takes_floats)
            for outputs, columns in options.shapes:
                matrix = TimedMatrix(kind, outputs, columns, weight_bytes)
                works = _works(team, TIERS_BY_NAME[isa].number, matrix, options.rows)
                for line in _measure(matrix, works, read, peak, options.repeats):
                    yield {**common, **line}
    finally:
        team.stop()


def _kinds(names: Sequence[str] | None) -> list[WeightType]:
    unknown = sorted(set(names or ()) - WEIGHT_TYPES.keys())
    if unknown:
        raise OctavoError(f"There is no weight type {unknown[0]!r}; --types takes {', '.join(WEIGHT_TYPES)}.")
    return [WEIGHT_TYPES[name] for name in names or WEIGHT_TYPES]


def _works(team: Team, tier: int, matrix: TimedMatrix, row_counts: Sequence[int]) -> Mapping[Work, TimedMatmul]:
    works = {}
    for rows in row_counts:
        works[rows, TILE_WIDTHS[0]] = TimedMatmul(team, tier, matrix, rows)
        if has_matrix_tiles(tier) and rows >= MATRIX_TILE_WIDTH:
            works[rows, MATRIX_TILE_WIDTH] = TimedMatmul(team, tier, matrix, rows, crossover=MATRIX_TILE_WIDTH)
    return works


def _measure(
    matrix: TimedMatrix, works: Mapping[Work, TimedMatmul], read: ReadProbe, peak: PeakProbe, repeats: int
) -> Iterator[Line]:
    rounds = [
        (read.measure(), peak.measure(), *(work.run() for work in works.values()))
        for _ in range(repeats + 1)  # the first warms up
    ]
    peak_rate = max(round_[1] for round_ in rounds)
    read_rate, _, *seconds = np.median(rounds[1:], axis=0).tolist()
    for (rows, tile), time_taken in zip(works, seconds, strict=True):
        bytes_rate = matrix.copies[0].nbytes / time_taken
        operations_rate = 2 * rows * matrix.outputs * matrix.columns / time_taken
        yield {
            "type": matrix.kind.name,
            "shape": f"{matrix.outputs}x{matrix.columns}",
            "rows": rows,
            "tile": tile,
            "us": time_taken * 1e6,
            "gb_s": bytes_rate / 1e9,
            "gop_s": operations_rate / 1e9,
            "read_gb_s": read_rate / 1e9,
            "peak_gop_s": peak_rate / 1e9,
            "of_read": bytes_rate / read_rate,
            "of_peak": operations_rate / peak_rate,
        }
