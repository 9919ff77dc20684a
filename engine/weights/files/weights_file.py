"""What every model on disk looks like to its loader, whatever its format: metadata and tensors in GGUF's terms.

Beside them: how many bytes of weights a step reads, and runs of rows that are read at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError
from engine.weights.files.gguf_values import MetadataValue


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies, and how its bytes are to be read."""

    name: str
    shape: tuple[int, ...]  # in NumPy's order: the last axis is contiguous (GGUF itself lists it first)
    type: str  # "F32", "Q4_1", ...
    offset: int  # bytes from the start of the file
    nbytes: int


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """Packed bytes of a model's matrices. Embeddings that are only looked up do not count."""

    dense: int  # read by every step
    experts: int = 0  # of all experts of all layers
    expert_count: int = 1  # of a layer
    active: int = 0  # experts that a row goes to

    def of_step(self, rows: int) -> float:
        """Expected bytes that a step of `rows` rows reads, where rows choose their experts evenly and independently.

        Of N experts with k active, rows touch N * (1 - (1 - k / N)**rows); rows that are alike touch fewer.
        """
        touched = 1 - (1 - self.active / self.expert_count) ** rows
        return self.dense + self.experts * touched


def row_runs(numbers: NDArray[np.int64]) -> list[tuple[int, int]]:
    """The first row and the length of each run of numbers that follow one another, in order."""
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    return [(int(run[0]), len(run)) for run in runs]


class WeightsFile(Protocol):
    """An open model: a GGUF file, the parts of a split one, or a folder of safetensors; `open_weights` opens any.

    Every method is safe to call from several threads.
    """

    @property
    def path(self) -> Path: ...

    @property
    def architecture(self) -> str: ...

    @property
    def nbytes(self) -> int:
        """Bytes of the files."""

    @property
    def metadata(self) -> Mapping[str, MetadataValue]: ...

    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...

    def path_of(self, name: str) -> Path:
        """The file, of those that make up the model, that holds a tensor, or that it is missing in."""

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The tensor's bytes: uint8 [rows, row_bytes]; a vector is one row, leading axes are flattened into rows.

        A view of the file where the tensor lies there as it is, else a copy of the whole: prefer `rows` for matrices.
        """

    def rows(self, name: str, first: int, count: int) -> NDArray[np.uint8]:
        """Some rows of what `raw` gives, read without the others: uint8 [count, row_bytes].

        Raises ModelFileError where a file was cut since it was opened, or the disk fails.
        """

    def check_size(self) -> None:
        """Raise ModelFileError if a file was cut since it was opened: a page that is gone would end the process."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *fault: object) -> None: ...


def checked_tensor(file: WeightsFile, name: str, shape: tuple[int, ...]) -> TensorInfo:
    """The tensor of this name and shape; a vector will do for a matrix of one row. Raises ModelFileError."""
    info = file.tensors.get(name)
    if info is None:
        raise ModelFileError(f"{file.path_of(name)} is incomplete: it has no tensor {name}.")
    if info.shape != shape and (1, *info.shape) != shape:
        raise ModelFileError(f"{file.path_of(name)} is broken: {name} has shape {info.shape}, not {shape}.")
    return info
