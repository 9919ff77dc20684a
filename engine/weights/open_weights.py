"""Opens a model of any format that this version reads, by what its path is; several files are shown as one model.

The parts of a split GGUF are named as llama-gguf-split names them: NAME-00001-of-00003.gguf. Every part's metadata says
how many parts there are (`split.count`) and which part it is (`split.no`, from 0). The metadata of the first part is
the model's, and says how many tensors all parts hold (`split.tensors.count`). A draft head's file is shown beside its
model.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError, ModelNotFoundError
from engine.weights.files.gguf import GgufFile
from engine.weights.files.gguf_values import MetadataValue
from engine.weights.files.metadata import Metadata
from engine.weights.files.weights_file import TensorInfo, WeightsFile


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


MAX_PARTS = 65535  # split.count is a u16
_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.ASCII)


def is_one_split(files: Sequence[Path]) -> bool:
    """Whether all files are, by their names, parts of one model."""
    names = [_NAME.fullmatch(file.name) for file in files]
    return len({name and (name["stem"], name["count"]) for name in names}) == 1 and None not in names


def model_stem(path: Path) -> str:
    """The file's name without suffix and, where it is a part by its name, without the part's number."""
    name = _NAME.fullmatch(path.name)
    return path.stem if name is None else name["stem"]


def is_later_part(path: Path) -> bool:
    """Whether the file is, by its name, a part other than the first."""
    name = _NAME.fullmatch(path.name)
    return name is not None and int(name["number"]) != 1


def parts_of(file: GgufFile) -> int:
    """How many files hold the model, by this one's metadata."""
    return Metadata(file.metadata, file.path).integer("split.count", 1, maximum=MAX_PARTS)


def open_split(part: Path, count: int) -> MergedFiles:
    """Open all `count` parts of a model, given any of them.

    Raises ModelNotFoundError for a part that is not there, ModelFileError for parts that do not belong together.
    """
    with ExitStack() as opened:
        files = [opened.enter_context(_open_part(path, part, count)) for path in _paths(part, count)]
        for number, file in enumerate(files):
            _check(file, number, count)
        merged = MergedFiles(files)
        _check_tensor_count(merged)
        opened.pop_all()
    return merged


def _paths(part: Path, count: int) -> list[Path]:
    name = _NAME.fullmatch(part.name)
    if name is None or int(name["count"]) != count:
        raise ModelFileError(
            f"{part} is one of {count} parts of a split model, but its name does not end in"
            f" -00001-of-{count:05}.gguf or the like, so the others cannot be found; rename all parts."
        )
    return [part.with_name(f"{name['stem']}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]


def _open_part(path: Path, given: Path, count: int) -> GgufFile:
    try:
        return GgufFile.open(path)
    except ModelNotFoundError as error:
        raise ModelNotFoundError(
            f"{given} is one of {count} parts of a split model, of which {path.name} is missing;"
            " put all parts into one folder."
        ) from error


def _check(file: GgufFile, number: int, count: int) -> None:
    metadata = Metadata(file.metadata, file.path)
    if metadata.integer("split.count", 1) != count or metadata.integer("split.no") != number:
        raise ModelFileError(
            f"{file.path} is not what its name says: by its metadata it is not part {number + 1} of {count};"
            " fetch all parts again."
        )


def _check_tensor_count(merged: MergedFiles) -> None:
    expected = Metadata(merged.metadata, merged.path).integer("split.tensors.count")
    if len(merged.tensors) != expected:
        raise ModelFileError(
            f"{merged.path} and its other parts hold {len(merged.tensors)} tensors, not {expected};"
            " fetch all parts again."
        )


def open_weights(path: Path) -> WeightsFile:
    """Open a GGUF file, all parts of a split one, or a folder of safetensors.

    Raises ModelNotFoundError, ModelFileError or UnsupportedModelError, whatever is there.
    """
    if path.is_dir():
        # Imported late: half of all that reads weights is for folders.
        from engine.weights.safetensors_folder import SafetensorsFolder

        return SafetensorsFolder(path)
    file = GgufFile.open(path)
    try:
        count = parts_of(file)
    except ModelFileError:
        file.close()
        raise
    if count <= 1:
        return file
    file.close()
    return open_split(path, count)
