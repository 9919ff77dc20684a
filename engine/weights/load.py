"""From tensors of a file to what kernels read: matrices repacked x16, vectors as float32, embeddings by row."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError, UnsupportedModelError
from engine.weights.gguf import GgufFile
from engine.weights.gguf_tensors import TensorInfo
from kernels.memory import Arena
from kernels.quant.weight_types import WEIGHT_TYPES, WeightType, dequantize, pack

# Rows repacked at a time: bounds the memory of the intermediate steps.
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Matrix:
    """A packed weight matrix [outputs, columns]."""

    kind: WeightType
    packed: NDArray[np.uint8]  # [groups of 16 outputs, blocks, packed bytes]
    outputs: int
    columns: int


class WeightLoader:
    """Takes tensors out of one file, checks their shapes and types, and lets go of the file's pages behind itself."""

    def __init__(self, file: GgufFile, *, activations: str, progress: Callable[[float], None]) -> None:
        self._file = file
        self._as_floats = activations == "f32"
        self._progress = progress
        self._arena = Arena()
        self._done = 0
        self._total = sum(info.nbytes for info in file.tensors.values()) or 1
        self.matrix_bytes = 0  # packed so far: what a decode step reads

    def has(self, name: str) -> bool:
        """Tell whether the file holds a tensor."""
        return name in self._file.tensors

    def matrix(self, name: str, outputs: int, columns: int) -> Matrix:
        """Repack a matrix; with f32 activations it is dequantized to float32 first."""
        info = self._checked(name, (outputs, columns))
        kind = self._kind(info)
        stored = WEIGHT_TYPES["F32"] if self._as_floats else kind
        if not stored.check(columns):
            raise UnsupportedModelError(
                f"{self._file.path}: {name} has {columns} columns, which {stored.name} kernels cannot take;"
                " use a model whose widths are multiples of 32."
            )
        raw = self._file.raw(name)
        packed: NDArray[np.uint8] | None = None
        for start in range(0, outputs, _ROWS_AT_ONCE):
            part = self._pack(kind, stored, raw[start : start + _ROWS_AT_ONCE])
            if packed is None:
                packed = self._arena.zeroed((-(-outputs // 16), *part.shape[1:]))
            packed[start // 16 : start // 16 + len(part)] = part
        assert packed is not None
        self.matrix_bytes += packed.nbytes
        self._advance(info)
        return Matrix(stored, packed, outputs, columns)

    def vector(self, name: str, length: int) -> NDArray[np.float32]:
        """Return a one-dimensional tensor as float32."""
        info = self._checked(name, (length,))
        values = dequantize(self._kind(info), self._file.raw(name)).reshape(length).astype(np.float32)
        self._advance(info)
        return values

    def embedding(self, name: str, rows: int, columns: int) -> Callable[[NDArray[np.int64]], NDArray[np.float32]]:
        """Return the function that looks up rows; they stay in the file until they are used."""
        kind = self._kind(self._checked(name, (rows, columns)))
        raw = self._file.raw(name)
        return lambda ids: dequantize(kind, raw[ids])

    def _pack(self, kind: WeightType, stored: WeightType, raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
        if stored is kind:
            return pack(kind, raw)
        return pack(stored, dequantize(kind, raw).view(np.uint8))

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

    def _advance(self, info: TensorInfo) -> None:
        self._file.release(info.name)
        self._done += info.nbytes
        self._progress(min(1.0, self._done / self._total))
