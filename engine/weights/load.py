"""From tensors of a file to what kernels read: matrices repacked x16, vectors as float32, embeddings by row."""

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from engine.errors import UnsupportedModelError
from engine.weights.digest import PIECE_BYTES, Piece, joined, piece_digest, pieces_of, submit_digest
from engine.weights.files.weights_file import TensorInfo, WeightBytes, WeightsFile, checked_tensor
from kernels.build.jit import Kernel
from kernels.machine.cpu import usable_cores
from kernels.machine.memory import Arena
from kernels.quant.quads import ROWS
from kernels.quant.repack import pack_into, packer
from kernels.quant.rows import RowReader, dequantize_rows, row_dequantizer
from kernels.quant.weight_types import F32, WEIGHT_TYPES, WeightType


@dataclass(frozen=True, slots=True)
class Matrix:
    """A packed weight matrix [outputs, columns]."""

    kind: WeightType
    packed: NDArray[np.uint8]  # [groups of 16 outputs, blocks, packed bytes]
    columns: int

    @property
    def group_bytes(self) -> int:
        """Packed bytes of 16 outputs."""
        _, blocks, packed_bytes = self.packed.shape
        return int(blocks * packed_bytes)


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
class _Packing:
    """A matrix of the file, and how it is packed."""

    name: str
    kind: WeightType
    stored: WeightType
    packed: NDArray[np.uint8]  # [groups of 16 outputs, blocks, packed bytes]
    columns: int


def loading_kernels(kind: WeightType, activations: str) -> tuple[Kernel, Kernel]:
    """The kernels that loading a matrix of this type needs."""
    return row_dequantizer(kind), packer(_stored(kind, activations))


def _stored(kind: WeightType, activations: str) -> WeightType:
    return F32 if activations == "f32" else kind


class WeightLoader:
    """Takes tensors out of one file, and checks their shapes and types.

    Matrices are repacked by threads of their own while the program is built; `finish` waits for them. The same threads
    take the digest of every byte of the file's tensors.
    """

    def __init__(self, file: WeightsFile, *, activations: str, progress: Callable[[float], None]) -> None:
        self._file = file
        self._activations = activations
        self._progress = progress
        self._arena = Arena()
        self._threads = ThreadPoolExecutor(usable_cores(), "octavo-load")
        self._pending: dict[str, list[Future[bytes]]] = {}  # by tensor: the digests of its pieces
        self._matrices: dict[str, Matrix] = {}
        self.bytes = WeightBytes(0)  # of what has been taken out so far
        self.digests: dict[str, bytes] = {}  # of all tensors, once `finish` has returned

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
        kind = self._kind(checked_tensor(self._file, name, (outputs, columns)))
        if name not in self._matrices:
            matrix = self._matrices[name] = self._packed(name, kind, outputs, columns)
            self.bytes = replace(self.bytes, dense=self.bytes.dense + matrix.packed.nbytes)
        return self._matrices[name]

    def experts(self, name: str, count: int, active: int, outputs: int, columns: int) -> Experts:
        """Return the matrices of `count` experts, as `matrix` does; `active` of them are read for one row.

        Experts are packed without gaps, so `outputs` must be a multiple of 16.
        """
        assert outputs % ROWS == 0 and self.bytes.active in (0, active)
        kind = self._kind(checked_tensor(self._file, name, (count, outputs, columns)))
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
        packed = self._arena.zeroed((-(-outputs // ROWS), columns // stored.values, stored.packed_bytes))
        packing = _Packing(name, kind, stored, packed, columns)
        pieces = pieces_of(self._file.tensors[name])
        self._pending[name] = [self._threads.submit(self._fill, packing, piece) for piece in pieces]
        return Matrix(stored, packed, columns)

    def finish(self) -> WeightBytes:
        """Wait until every matrix is in memory; returns what all of them take."""
        tensors = self._file.tensors
        for name in tensors.keys() - self._pending.keys():  # small ones, and embeddings that stay in the file
            self._pending[name] = submit_digest(self._file, tensors[name], self._threads)
        done, total = 0.0, max(1, sum(info.nbytes for info in tensors.values()))
        for name, pieces in self._pending.items():
            digests = []
            for piece in pieces:
                self._progress(done / total)
                digests.append(piece.result())
                done += tensors[name].nbytes / len(pieces)
            self.digests[name] = joined(digests)
        self._progress(1.0)
        return self.bytes

    @property
    def memory(self) -> list[NDArray[np.uint8]]:
        """Where the matrices lie."""
        return self._arena.used

    def _fill(self, packing: _Packing, piece: Piece) -> bytes:
        """Read a piece and pack it; returns its digest."""
        rows = self._file.rows(packing.name, *piece)
        digest = piece_digest(rows)
        step = len(rows)
        if packing.stored is not packing.kind:  # floats take more room than what they are made of
            step = max(1, PIECE_BYTES // (4 * packing.columns * ROWS)) * ROWS
        for first in range(0, len(rows), step):
            part = rows[first : first + step]
            group = (piece.first + first) // ROWS
            packed = packing.packed[group : group + -(-len(part) // ROWS)]
            pack_into(packing.stored, self._as_stored(packing, part), packed)
        return digest

    def _as_stored(self, packing: _Packing, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Rows of the file in the type that they are packed in."""
        if packing.stored is packing.kind:
            return rows
        values = np.empty((len(rows), packing.columns), np.float32)
        dequantize_rows(packing.kind, rows, np.arange(len(rows)), values)
        return values.view(np.uint8)

    def vector(self, name: str, length: int) -> NDArray[np.float32]:
        """Return a one-dimensional tensor as float32."""
        kind = self._kind(checked_tensor(self._file, name, (length,)))
        return kind.dequantize(self._whole(name)).reshape(length).astype(np.float32)

    def table(self, name: str, rows: int, columns: int) -> NDArray[np.float32]:
        """Return a small matrix as plain float32 [rows, columns]."""
        kind = self._kind(checked_tensor(self._file, name, (rows, columns)))
        return kind.dequantize(self._whole(name)).reshape(rows, columns).astype(np.float32)

    def _whole(self, name: str) -> NDArray[np.uint8]:
        """All rows of a small tensor, read."""
        return self._file.rows(name, 0, math.prod(self._file.tensors[name].shape[:-1]))

    def embedding(self, name: str, rows: int, columns: int) -> Callable[[list[int], NDArray[np.float32]], None]:
        """Return the function that writes rows to float32 [ids, columns]; they stay in the file until they are used.

        It raises ModelFileError if the file has been cut meanwhile.
        """
        kind = self._kind(checked_tensor(self._file, name, (rows, columns)))
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
