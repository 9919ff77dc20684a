"""What every model on disk looks like to its loader, whatever its format: metadata and tensors in GGUF's terms."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError
from engine.weights.files.gguf_tensors import TensorInfo
from engine.weights.files.gguf_values import MetadataValue


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
