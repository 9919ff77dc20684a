"""From tensors of a file to what kernels read: matrices repacked x16, vectors as float32, embeddings by row."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError, UnsupportedModelError
from engine.weights.gguf_tensors import TensorInfo
from engine.weights.weight_bytes import WeightBytes
from engine.weights.weights_file import WeightsFile
from kernels.cpu import usable_cores
from kernels.jit import Kernel
from kernels.memory import Arena
from kernels.quant.floats import F32_TYPE
from kernels.quant.quads import ROWS
from kernels.quant.repack import pack_into, packer
from kernels.quant.rows import RowReader, dequantize_rows, row_dequantizer
from kernels.quant.weight_types import WEIGHT_TYPES, WeightType, blocks_of, dequantize

# Bytes of rows that one thread takes at a time: they bound the memory that loading needs beside the weights.
_PIECE_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class Matrix:
    """A packed weight matrix [outputs, columns]."""

    kind: WeightType
    packed: NDArray[np.uint8]  # [groups of 16 outputs, blocks, packed bytes]
    columns: int


@dataclass(frozen=True, slots=True)
class Experts:
    """The packed matrices [outputs, columns] of all experts of a layer; may be a part of their outputs."""

    kind: WeightType
    packed: NDArray[np.uint8]  # [experts, groups of 16 outputs, blocks, packed bytes]
    columns: int

    def outputs(self, first: int, last: int) -> "Experts":
        """A view of outputs first..last-1 of every expert; multiples of 16."""
        return Experts(self.kind, self.packed[:, first // ROWS : last // ROWS], self.columns)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some neighbouring rows of a matrix, and the groups that they fill."""

    name: str
    kind: WeightType
    stored: WeightType
    first_row: int
    rows: int
    packed: NDArray[np.uint8]
    columns: int


def loading_kernels(kind: WeightType, activations: str) -> tuple[Kernel, Kernel]:
    """The kernels that loading a matrix of this type needs."""
    return row_dequantizer(kind), packer(_stored(kind, activations))


def _stored(kind: WeightType, activations: str) -> WeightType:
    return F32_TYPE if activations == "f32" else kind


class WeightLoader:
    """Takes tensors out of one file, checks their shapes and types, and lets go of the file's pages behind itself.

    Matrices are repacked by threads of their own while the program is built; `finish` waits for them.
    """

    def __init__(self, file: WeightsFile, *, activations: str, progress: Callable[[float], None]) -> None:
        self._file = file
        self._activations = activations
        self._progress = progress
        self._arena = Arena()
        self._threads = ThreadPoolExecutor(usable_cores(), "octavo-load")
        self._pending: list[tuple[Future[None], int]] = []  # with the bytes of each in the file
        self._matrices: dict[str, Matrix] = {}
        self.bytes = WeightBytes(0)  # of what has been taken out so far

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        """Wait for the matrices that are being filled, and drop those that are not, after a fault."""
        self._threads.shutdown(cancel_futures=True)

    def has(self, name: str) -> bool:
        """Tell whether the file holds a tensor."""
        return name in self._file.tensors

    def matrix(self, name: str, outputs: int, columns: int) -> Matrix:
        """Return a matrix whose memory is filled by the time that `finish` returns.

        With f32 activations it is dequantized to float32. What was asked for before is given again.
        """
        kind = self._kind(self._checked(name, (outputs, columns)))
        if name not in self._matrices:
            matrix = self._matrices[name] = self._packed(name, kind, outputs, columns)
            self.bytes = replace(self.bytes, dense=self.bytes.dense + matrix.packed.nbytes)
        return self._matrices[name]

    def experts(self, name: str, count: int, active: int, outputs: int, columns: int) -> Experts:
        """Return the matrices of `count` experts, as `matrix` does; `active` of them are read for one row.

        Experts are packed without gaps, so `outputs` must be a multiple of 16.
        """
        assert outputs % ROWS == 0 and self.bytes.active in (0, active)
        kind = self._kind(self._checked(name, (count, outputs, columns)))
        matrix = self._packed(name, kind, count * outputs, columns)
        nbytes = self.bytes.experts + matrix.packed.nbytes
        self.bytes = replace(self.bytes, experts=nbytes, expert_count=count, active=active)
        packed = matrix.packed.reshape(count, outputs // ROWS, *matrix.packed.shape[1:])
        return Experts(matrix.kind, packed, columns)

    def _packed(self, name: str, kind: WeightType, outputs: int, columns: int) -> Matrix:
        """Give out the memory of a matrix, and have the threads fill it."""
        stored = _stored(kind, self._activations)
        self._check_columns(name, stored, columns)
        for kernel in loading_kernels(kind, self._activations):
            _ = kernel.address  # compiled now if need be, and not by each thread
        packed = self._arena.zeroed((-(-outputs // ROWS), blocks_of(stored, columns), stored.packed_bytes))
        file_row_bytes = self._file.tensors[name].nbytes // outputs
        row_bytes = max(file_row_bytes, columns * 4 if stored is not kind else 0)
        groups = max(1, _PIECE_BYTES // (row_bytes * ROWS))
        for first in range(0, len(packed), groups):
            rows = min(groups * ROWS, outputs - first * ROWS)
            piece = _Piece(name, kind, stored, first * ROWS, rows, packed[first : first + groups], columns)
            self._pending.append((self._threads.submit(self._fill, piece), rows * file_row_bytes))
        return Matrix(stored, packed, columns)

    def finish(self) -> WeightBytes:
        """Wait until every matrix is in memory; returns what all of them take."""
        done, total = 0, sum(nbytes for _, nbytes in self._pending)
        for future, nbytes in self._pending:
            self._progress(done / total)
            future.result()
            done += nbytes
        self._progress(1.0)
        return self.bytes

    @property
    def memory(self) -> list[NDArray[np.uint8]]:
        """Where the matrices lie."""
        return self._arena.used

    def _fill(self, piece: _Piece) -> None:
        self._file.check_size()
        rows = self._file.rows(piece.name, piece.first_row, piece.rows)
        if piece.stored is not piece.kind:
            values = np.empty((len(rows), piece.columns), np.float32)
            dequantize_rows(piece.kind, rows, np.arange(len(rows)), values)
            rows = values.view(np.uint8)
        pack_into(piece.stored, rows, piece.packed)
        self._file.release(piece.name, piece.first_row, piece.rows)

    def vector(self, name: str, length: int) -> NDArray[np.float32]:
        """Return a one-dimensional tensor as float32."""
        kind = self._kind(self._checked(name, (length,)))
        return dequantize(kind, self._file.raw(name)).reshape(length).astype(np.float32)

    def table(self, name: str, rows: int, columns: int) -> NDArray[np.float32]:
        """Return a small matrix as plain float32 [rows, columns]."""
        kind = self._kind(self._checked(name, (rows, columns)))
        return dequantize(kind, self._file.raw(name)).reshape(rows, columns).astype(np.float32)

    def embedding(self, name: str, rows: int, columns: int) -> Callable[[list[int], NDArray[np.float32]], None]:
        """Return the function that writes rows to float32 [ids, columns]; they stay in the file until they are used.

        It raises ModelFileError if the file has been cut meanwhile.
        """
        kind = self._kind(self._checked(name, (rows, columns)))
        self._check_columns(name, kind, columns)
        file, reader = self._file, RowReader(kind, self._file.raw(name), columns)

        def look_up(ids: list[int], output: NDArray[np.float32]) -> None:
            if not 0 <= min(ids) <= max(ids) < rows:  # compiled code would read whatever lies there
                raise IndexError(f"a token id is not within 0 to {rows - 1}")
            file.check_size()
            reader.read(np.array(ids, np.int64), output)

        return look_up

    def _check_columns(self, name: str, kind: WeightType, columns: int) -> None:
        if columns % kind.granule:
            raise UnsupportedModelError(
                f"{self._file.path_of(name)}: {name} has {columns} columns, which {kind.name} kernels cannot take;"
                f" use a model whose widths are multiples of {kind.granule}."
            )

    def _kind(self, info: TensorInfo) -> WeightType:
        kind = WEIGHT_TYPES.get(info.type)
        if kind is None:
            raise UnsupportedModelError(
                f"{self._file.path_of(info.name)}: {info.name} is of type {info.type}, which this version cannot run;"
                f" use a file in one of {', '.join(WEIGHT_TYPES)}."
            )
        return kind

    def _checked(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        info = self._file.tensors.get(name)
        if info is None:
            raise ModelFileError(f"{self._file.path_of(name)} is incomplete: it has no tensor {name}.")
        if info.shape != shape and (1, *info.shape) != shape:  # a vector will do for a matrix of one row
            raise ModelFileError(f"{self._file.path_of(name)} is broken: {name} has shape {info.shape}, not {shape}.")
        return info
