"""One matmul alone, over random weights: what measurements of kernels run."""

import math
import time
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from engine.errors import OctavoError
from engine.machine import available_memory
from kernels.build.jit import address
from kernels.machine.memory import zeroed
from kernels.matmul import gemv
from kernels.matmul.activations import NEVER, Activations, form_of
from kernels.matmul.row_ops import PACK, pack_kernel
from kernels.matmul.tiles import MATMUL
from kernels.quant.quads import ROWS
from kernels.quant.repack import pack_into
from kernels.quant.weight_types import FloatType, WeightType
from kernels.run.program import Program
from kernels.run.team import Team


class TimedMatrix:
    """Random weights of one type and shape, in as many copies as fill `weight_bytes`."""

    def __init__(self, kind: WeightType, outputs: int, columns: int, weight_bytes: int) -> None:
        if columns % kind.granule:
            raise OctavoError(f"{kind.name} cannot hold rows of {columns} values; choose another --shape.")
        self.kind, self.outputs, self.columns = kind, outputs, columns
        shape = (-(-outputs // ROWS), columns // kind.values, kind.packed_bytes)
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
        self,
        team: Team,
        tier: int,
        matrix: TimedMatrix,
        rows: int,
        *,
        crossover: int = NEVER,
        tiles: Mapping[str, int] | None = None,
    ) -> None:
        """crossover: as Activations has it; tiles: other tile functions than those of the type, by field of the op."""
        self._team, self._copies = team, len(matrix.copies)
        values = np.random.default_rng(2).standard_normal((rows, matrix.columns)).astype(np.float32)
        self._rows = np.array([rows], np.int64)
        self._packed = Activations.allocate(rows, matrix.columns, crossover)
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
                **gemv.task_bounds(blocks * packed_bytes),
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
