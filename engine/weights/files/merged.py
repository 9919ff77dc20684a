"""Several files shown as one model: the parts of a split one, or a draft head's file beside the model's own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError
from engine.weights.files.gguf_tensors import TensorInfo
from engine.weights.files.gguf_values import MetadataValue
from engine.weights.files.weights_file import WeightsFile


class MergedFiles:
    """A WeightsFile with the metadata of the first file and the tensors of all; closing it closes them."""

    def __init__(self, files: Sequence[WeightsFile]) -> None:
        """Raise ModelFileError where two files hold a tensor of one name."""
        self._files = files
        self._owners: dict[str, WeightsFile] = {}
        for file in files:
            for name in file.tensors:
                if name in self._owners:
                    raise ModelFileError(
                        f"{self._owners[name].path} and {file.path} both hold the tensor {name!r}; fetch both again."
                    )
                self._owners[name] = file
        self.tensors: Mapping[str, TensorInfo] = {name: file.tensors[name] for name, file in self._owners.items()}

    @property
    def path(self) -> Path:
        return self._files[0].path

    @property
    def architecture(self) -> str:
        return self._files[0].architecture

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for file in self._files)

    @property
    def metadata(self) -> Mapping[str, MetadataValue]:
        return self._files[0].metadata

    def path_of(self, name: str) -> Path:
        return self._owners.get(name, self._files[0]).path

    def raw(self, name: str) -> NDArray[np.uint8]:
        return self._owners[name].raw(name)

    def rows(self, name: str, first: int, count: int) -> NDArray[np.uint8]:
        return self._owners[name].rows(name, first, count)

    def check_size(self) -> None:
        for file in self._files:
            file.check_size()

    def close(self) -> None:
        for file in self._files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()
