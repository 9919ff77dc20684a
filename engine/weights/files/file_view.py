"""A model shown otherwise than its file holds it: with other metadata, other tensors, or other rows of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from engine.weights.files.gguf_values import MetadataValue
from engine.weights.files.weights_file import TensorInfo, WeightsFile


class FileView:
    """A WeightsFile over another; closing it closes the one beneath it."""

    def __init__(
        self,
        file: WeightsFile,
        *,
        metadata: Mapping[str, MetadataValue] | None = None,
        tensors: Mapping[str, TensorInfo] | None = None,
    ) -> None:
        """None: what `file` has."""
        self._file = file
        self.metadata = file.metadata if metadata is None else metadata
        self.tensors = file.tensors if tensors is None else tensors

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def architecture(self) -> str:
        return self._file.architecture

    @property
    def nbytes(self) -> int:
        return self._file.nbytes

    def path_of(self, name: str) -> Path:
        return self._file.path_of(name)

    def raw(self, name: str) -> NDArray[np.uint8]:
        return self._file.raw(name)

    def rows(self, name: str, first: int, count: int) -> NDArray[np.uint8]:
        return self._file.rows(name, first, count)

    def check_size(self) -> None:
        self._file.check_size()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()
