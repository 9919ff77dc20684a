"""Measures the matmul of every weight type alone, against what the machine can read and what it can multiply.

A measurement goes over copies of one matrix, one after the other, that together are four times the last-level cache, so
that weights come from memory as in a step of a large model. Each round measures the machine's limits and every number
of rows in turn; the peak is the best of the rounds, all else their median.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.errors import OctavoError
from engine.families.loaded import choose_isa, choose_threads
from engine.machine import available_memory, last_level_cache
from kernels import gemv
from kernels.activations import Activations, form_of, widest_tile
from kernels.bandwidth import ReadProbe
from kernels.cpu import TIER_NUMBERS
from kernels.jit import address
from kernels.memory import zeroed
from kernels.norm import PACK, pack_kernel
from kernels.peak import PeakProbe
from kernels.program import Program
from kernels.quant.floats import FloatType
from kernels.quant.quads import ROWS
from kernels.quant.repack import pack_into
from kernels.quant.weight_types import WEIGHT_TYPES, WeightType, blocks_of
from kernels.team import Team
from kernels.tiles import MATMUL

_LEAST_BYTES = 256 << 20
Line = dict[str, object]


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
    """Yield a line for each type, shape and number of rows.

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
            peak = PeakProbe(team, TIER_NUMBERS[isa], floats=kind.takes_floats)
            for outputs, columns in options.shapes:
                matrix = TimedMatrix(kind, outputs, columns, weight_bytes)
                works = {rows: TimedMatmul(team, TIER_NUMBERS[isa], matrix, rows) for rows in options.rows}
                for line in _measure(matrix, works, read, peak, options.repeats):
                    yield {**common, **line}
    finally:
        team.stop()


def _kinds(names: Sequence[str] | None) -> list[WeightType]:
    unknown = sorted(set(names or ()) - WEIGHT_TYPES.keys())
    if unknown:
        raise OctavoError(f"There is no weight type {unknown[0]!r}; --types takes {', '.join(WEIGHT_TYPES)}.")
    return [WEIGHT_TYPES[name] for name in names or WEIGHT_TYPES]


class TimedMatrix:
    """Random weights of one type and shape, in as many copies as fill `weight_bytes`."""

    def __init__(self, kind: WeightType, outputs: int, columns: int, weight_bytes: int) -> None:
        if columns % kind.granule:
            raise OctavoError(f"{kind.name} cannot hold rows of {columns} values; choose another --shape.")
        self.kind, self.outputs, self.columns = kind, outputs, columns
        shape = (-(-outputs // ROWS), blocks_of(kind, columns), kind.packed_bytes)
        count = max(1, round(weight_bytes / math.prod(shape)))
        if count * math.prod(shape) > available_memory() // 2:
            raise OctavoError("The weights to measure with do not fit into memory; make --megabytes smaller.")
        self.copies = zeroed((count, *shape), np.uint8)
        pack_into(kind, _random_rows(kind, outputs, columns), self.copies[0])
        self.copies[1:] = self.copies[0]


def _random_rows(kind: WeightType, outputs: int, columns: int) -> NDArray[np.uint8]:
    """Random rows as a file holds them, [outputs, row bytes].

    Wherever a type has its scales: every two bytes below 0x3C are an f16 that is less than one and normal.
    """
    values = 1 if isinstance(kind, FloatType) else kind.values
    size = outputs * columns // values * kind.file_bytes
    return np.random.default_rng(1).integers(0x10, 0x3C, size, np.uint8).reshape(outputs, -1)


class TimedMatmul:
    """A program of one matmul for each copy of a matrix, and its inputs."""

    def __init__(
        self, team: Team, tier: int, matrix: TimedMatrix, rows: int, tiles: Mapping[str, int] | None = None
    ) -> None:
        """`tiles`: other tile functions than those of the type, as fields of the op record."""
        self._team, self._copies = team, len(matrix.copies)
        values = np.random.default_rng(2).standard_normal((rows, matrix.columns)).astype(np.float32)
        self._rows = np.array([rows], np.int64)
        self._packed = Activations.allocate(rows, matrix.columns, widest_tile(tier))
        self._pack(values, form_of(matrix.kind))
        groups, blocks, packed_bytes = matrix.copies.shape[1:]
        self.output = np.zeros((rows, groups * 16), np.float32)
        self._program = Program()
        for copy in matrix.copies:
            self._program.emit(
                MATMUL,
                address(gemv.matmul_kernel()),
                weights=copy.ctypes.data,
                groups=groups,
                **gemv.cut_tasks(groups, blocks * packed_bytes, team.threads),
                blocks=blocks,
                columns=matrix.columns,
                rows=self._rows.ctypes.data,
                packed=self._packed.address,
                output=self.output.ctypes.data,
                output_stride=groups * 16,
                add=0,
                **(tiles or gemv.tile_functions(matrix.kind, tier)),
            )
        self._program.finish()

    def run(self) -> float:
        """Multiply by all copies; returns the seconds of one."""
        begin = time.perf_counter()
        self._team.run(self._program)
        return (time.perf_counter() - begin) / self._copies

    def _pack(self, values: NDArray[np.float32], forms: int) -> None:
        program = Program()
        program.emit(
            PACK,
            address(pack_kernel()),
            source=values.ctypes.data,
            columns=values.shape[1],
            rows=self._rows.ctypes.data,
            packed=self._packed.address,
            forms=forms,
        )
        self._team.run(program.finish())


def _measure(
    matrix: TimedMatrix, works: dict[int, TimedMatmul], read: ReadProbe, peak: PeakProbe, repeats: int
) -> Iterator[Line]:
    rounds = [
        (read.measure(), peak.measure(), *(work.run() for work in works.values()))
        for _ in range(repeats + 1)  # the first warms up
    ]
    peak_rate = max(round_[1] for round_ in rounds)
    read_rate, _, *seconds = np.median(rounds[1:], axis=0).tolist()
    for rows, time_taken in zip(works, seconds, strict=True):
        bytes_rate = matrix.copies[0].nbytes / time_taken
        operations_rate = 2 * rows * matrix.outputs * matrix.columns / time_taken
        yield {
            "type": matrix.kind.name,
            "shape": f"{matrix.outputs}x{matrix.columns}",
            "rows": rows,
            "us": time_taken * 1e6,
            "gb_s": bytes_rate / 1e9,
            "gop_s": operations_rate / 1e9,
            "read_gb_s": read_rate / 1e9,
            "peak_gop_s": peak_rate / 1e9,
            "of_read": bytes_rate / read_rate,
            "of_peak": operations_rate / peak_rate,
        }
