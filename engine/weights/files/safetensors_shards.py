"""All .safetensors files of a folder as one set of tensors: one file, or shards that an index names."""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError, ModelNotFoundError
from engine.weights.files.json_file import read_json_object
from engine.weights.files.safetensors_file import SafetensorsFile, StoredTensor

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_INDEX_BYTES = 100_000_000


class SafetensorsShards:
    """Open files; a tensor is in the file that the index says, and what the index does not name is there too."""

    def __init__(self, folder: Path) -> None:
        """Raises ModelNotFoundError for a shard that is not there, ModelFileError for broken ones."""
        index = folder / INDEX
        places = _indexed(index) if index.exists() else {}
        names = sorted(set(places.values())) or [_only_file(folder)]
        with ExitStack() as opened:
            self._files = {name: _open(folder / name, opened) for name in names}
            self._owners = {tensor: _owner(self._files[name], tensor) for tensor, name in places.items()}
            for file in self._files.values():
                self._take_all(file)
            opened.pop_all()
        self.tensors: dict[str, StoredTensor] = {name: file.tensors[name] for name, file in self._owners.items()}

    def _take_all(self, file: SafetensorsFile) -> None:
        """Own every tensor of a file: to leave out one that the index forgot would silently give another model."""
        for tensor in file.tensors:
            if self._owners.setdefault(tensor, file) is not file:
                raise ModelFileError(
                    f"{file.path} and {self._owners[tensor].path} both hold the tensor {tensor!r}; fetch both again."
                )

    @property
    def nbytes(self) -> int:
        """Bytes of the files."""
        return sum(map(len, self._files.values()))

    def view(self, name: str) -> NDArray[np.uint8]:
        """All rows as they lie in the file: uint8 [rows, row_bytes], a read-only view of the mapping."""
        return self._owners[name].view(name)

    def rows(self, name: str, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Some rows as they lie in the file: uint8 [numbers, row_bytes]."""
        return self._owners[name].rows(name, numbers)

    def check_size(self) -> None:
        for file in self._files.values():
            file.check_size()

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def _only_file(folder: Path) -> str:
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    if SINGLE in names:
        return SINGLE
    if len(names) != 1:
        what = f"{len(names)} safetensors files and no {INDEX}" if names else "no safetensors file"
        raise ModelNotFoundError(f"{folder} holds {what}; fetch the whole folder.")
    return names[0]


def _indexed(path: Path) -> dict[str, str]:
    weight_map = read_json_object(path, MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFileError(f"{path} is broken: it has no weight_map.")
    _check_names(weight_map.values(), path)
    return weight_map


def _check_names(names: Iterable[object], path: Path) -> None:
    """Shards stand beside their index: no name in a file leads out of its folder."""
    for name in names:
        if not isinstance(name, str) or not name.endswith(".safetensors") or name != Path(name).name or "\0" in name:
            raise ModelFileError(f"{path} is broken: {name!r} is not the name of a safetensors file in its folder.")


def _open(path: Path, opened: ExitStack) -> SafetensorsFile:
    try:
        file = SafetensorsFile(path)
    except ModelNotFoundError as error:
        raise ModelNotFoundError(f"{path} is missing, which {INDEX} names; fetch the whole folder.") from error
    opened.callback(file.close)
    return file


def _owner(file: SafetensorsFile, tensor: str) -> SafetensorsFile:
    if tensor not in file.tensors:
        raise ModelFileError(f"{file.path} lacks the tensor {tensor!r} that {INDEX} says is in it; fetch it again.")
    return file
