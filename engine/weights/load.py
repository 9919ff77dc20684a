"""From tensors of a file to what kernels read: matrices repacked x16, vectors as float32, embeddings by row."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError, UnsupportedModelError
from engine.weights.gguf import GgufFile
from engine.weights.gguf_tensors import TensorInfo
from kernels.cpu import usable_cores
from kernels.memory import Arena
from kernels.quant.weight_types import WEIGHT_TYPES, WeightType, blocks_of, dequantize, pack

# Rows repacked at a time: bounds the memory of the intermediate steps.
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Matrix:
    """A packed weight matrix [outputs, columns]."""

    kind: WeightType
    packed: NDArray[np.uint8]  # [groups of 16 outputs, blocks, packed bytes]
    columns: int


class WeightLoader:
    """Takes tensors out of one file, checks their shapes and types, and lets go of the file's pages behind itself.

    Matrices are repacked by threads of their own while the program is built; `finish` waits for them.
    """

    def __init__(self, file: GgufFile, *, activations: str, progress: Callable[[float], None]) -> None:
        self._file = file
        self._as_floats = activations == "f32"
        self._progress = progress
        self._arena = Arena()
        self._threads = ThreadPoolExecutor(usable_cores(), "octavo-load")
        self._pending: list[Future[None]] = []
        self._matrix_bytes = 0

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

        With f32 activations it is dequantized to float32.
        """
        kind = self._kind(self._checked(name, (outputs, columns)))
        stored = WEIGHT_TYPES["F32"] if self._as_floats else kind
        if not stored.check(columns):
            raise UnsupportedModelError(
                f"{self._file.path}: {name} has {columns} columns, which {stored.name} kernels cannot take;"
                " use a model whose widths are multiples of 32."
            )
        packed = self._arena.zeroed((-(-outputs // 16), blocks_of(stored, columns), stored.packed_bytes))
        self._matrix_bytes += packed.nbytes
        self._pending.append(self._threads.submit(self._fill, packed, name, kind, stored))
        return Matrix(stored, packed, columns)

    def finish(self) -> int:
        """Wait until every matrix is in memory; returns their bytes, which are what a decode step reads."""
        for done, future in enumerate(self._pending):
            self._progress(done / len(self._pending))
            future.result()
        self._progress(1.0)
        return self._matrix_bytes

    def _fill(self, packed: NDArray[np.uint8], name: str, kind: WeightType, stored: WeightType) -> None:
        raw = self._file.raw(name)
        for start in range(0, len(raw), _ROWS_AT_ONCE):
            part = raw[start : start + _ROWS_AT_ONCE]
            part = part if stored is kind else dequantize(kind, part).view(np.uint8)
            groups = pack(stored, part)
            packed[start // 16 : start // 16 + len(groups)] = groups
        self._file.release(name)

    def vector(self, name: str, length: int) -> NDArray[np.float32]:
        """Return a one-dimensional tensor as float32."""
        kind = self._kind(self._checked(name, (length,)))
        return dequantize(kind, self._file.raw(name)).reshape(length).astype(np.float32)

    def embedding(self, name: str, rows: int, columns: int) -> Callable[[NDArray[np.int64]], NDArray[np.float32]]:
        """Return the function that looks up rows; they stay in the file until they are used."""
        kind = self._kind(self._checked(name, (rows, columns)))
        raw = self._file.raw(name)
        return lambda ids: dequantize(kind, raw[ids])

    def _kind(self, info: TensorInfo) -> WeightType:
        kind = WEIGHT_TYPES.get(info.type)
        if kind is None:
            raise UnsupportedModelError(
                f"{self._file.path}: {info.name} is of type {info.type}, which this version cannot run;"
                f" use a file in one of {', '.join(WEIGHT_TYPES)}."
            )
        return kind

    def _checked(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        info = self._file.tensors.get(name)
        if info is None:
            raise ModelFileError(f"{self._file.path} is incomplete: it has no tensor {name}.")
        if info.shape != shape:
            raise ModelFileError(f"{self._file.path} is broken: {name} has shape {info.shape}, not {shape}.")
        return info
