"""A folder of config.json, tokenizer.json and safetensors, shown as the GGUF file that could be made of the folder.

Tensors are made as they are asked for, row by row: nothing is converted ahead. The .safetensors files are one set of
tensors: a single file, or shards that an index names.
"""

import math
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError, ModelNotFoundError, UnsupportedModelError
from engine.text.tokenizer_json import tokenizer_metadata
from engine.weights.files.gguf_values import MetadataValue
from engine.weights.files.json_file import read_json_object
from engine.weights.files.metadata import Metadata
from engine.weights.files.safetensors_file import SafetensorsFile, StoredTensor
from engine.weights.files.weights_file import TensorInfo
from engine.weights.mapping.config import float32, read_config
from engine.weights.mapping.families import map_model
from engine.weights.mapping.recipe import Recipe
from engine.weights.quantize import as_float32
from engine.weights.sampling_keys import KEYS, stated_number

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


_ELEMENT_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


class SafetensorsFolder:
    """A WeightsFile."""

    def __init__(self, folder: Path) -> None:
        """Raises ModelNotFoundError, ModelFileError or UnsupportedModelError, whatever the folder holds."""
        self.path = folder
        config = read_config(folder)
        self._shards = SafetensorsShards(folder)
        try:
            mapped = map_model(config, self._shards.tensors)
            self.architecture = mapped.architecture
            self._recipes, self._made = mapped.recipes, mapped.made
            self.tensors: Mapping[str, TensorInfo] = self._describe()
            self.metadata: Mapping[str, MetadataValue] = {
                "general.architecture": mapped.architecture,
                "general.name": folder.resolve().name,
                **mapped.metadata,
                **_sampling_metadata(folder),
                **tokenizer_metadata(folder, self._vocabulary()),
            }
        except BaseException:
            self._shards.close()
            raise

    @property
    def nbytes(self) -> int:
        return self._shards.nbytes

    def path_of(self, name: str) -> Path:
        return self.path

    def raw(self, name: str) -> NDArray[np.uint8]:
        recipe = self._recipes.get(name)
        if recipe is not None and recipe.is_stored:
            return self._shards.view(recipe.sources[0])
        return self.rows(name, 0, math.prod(self.tensors[name].shape[:-1]))

    def rows(self, name: str, first: int, count: int) -> NDArray[np.uint8]:
        """uint8 [count, row_bytes]."""
        if name in self._made:
            made = self._made[name]
            return made.reshape(-1, made.shape[-1])[first : first + count].view(np.uint8)
        recipe = self._recipes[name]
        stored = self._gathered(name, recipe, first, count)
        dtype = self._shards.tensors[recipe.sources[0]].dtype
        if recipe.columns is not None:
            stored = np.take(stored.view(f"u{_ELEMENT_BYTES[dtype]}"), recipe.columns, axis=1).view(np.uint8)
        if not recipe.is_widened:
            return stored
        values = as_float32(dtype, stored)
        changed = values if recipe.change is None else recipe.change(values)
        return np.ascontiguousarray(changed).view(np.uint8)

    def check_size(self) -> None:
        self._shards.check_size()

    def close(self) -> None:
        self._shards.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()

    def _vocabulary(self) -> int:
        """How many tokens have an embedding."""
        embedding = self.tensors.get("token_embd.weight")
        return 0 if embedding is None else embedding.shape[0]

    def _describe(self) -> dict[str, TensorInfo]:
        tensors = {name: self._info(name, recipe) for name, recipe in self._recipes.items()}
        made = {name: TensorInfo(name, values.shape, "F32", 0, values.nbytes) for name, values in self._made.items()}
        return tensors | made

    def _info(self, name: str, recipe: Recipe) -> TensorInfo:
        """Check that the recipe can be followed, and say what comes out."""
        stored = self._shards.tensors
        first, *others = (stored[source] for source in recipe.sources)
        if first.dtype not in _ELEMENT_BYTES:
            raise UnsupportedModelError(
                f"{self.path}: {first.name} is of the type {first.dtype}, which this version cannot run;"
                f" use a model in one of {', '.join(_ELEMENT_BYTES)}."
            )
        unlike = next((other for other in others if (other.shape, other.dtype) != (first.shape, first.dtype)), None)
        if unlike is not None:
            raise ModelFileError(f"{self.path} is broken: {unlike.name} is of another shape or type than {first.name}.")
        if not first.shape or 0 in first.shape or first.shape[-1] != recipe.shape[-1]:
            raise ModelFileError(f"{self.path} is broken: {first.name} has the shape {list(first.shape)}.")
        type_name = "F32" if recipe.is_widened else first.dtype
        nbytes = math.prod(recipe.shape) * _ELEMENT_BYTES[type_name]
        return TensorInfo(name, recipe.shape, type_name, 0, nbytes)

    def _gathered(self, name: str, recipe: Recipe, first: int, count: int) -> NDArray[np.uint8]:
        """The wanted rows in their stored type, before any change: uint8 [count, row_bytes]."""
        stored = self._shards.tensors[recipe.sources[0]]
        numbers = np.arange(first, first + count)
        wanted = numbers if recipe.rows is None else recipe.rows(numbers)
        if not 0 <= wanted.min() <= wanted.max() < stored.rows * len(recipe.sources):
            raise ModelFileError(f"{self.path} is broken: {name} is smaller than its config.json says.")
        sources, places = np.divmod(wanted, stored.rows)
        if sources.min() == sources.max():
            return self._shards.rows(recipe.sources[sources[0]], places)
        gathered = np.empty((count, stored.nbytes // stored.rows), np.uint8)
        for number in np.unique(sources):
            there = sources == number
            gathered[there] = self._shards.rows(recipe.sources[number], places[there])
        return gathered


def _sampling_metadata(folder: Path) -> dict[str, MetadataValue]:
    """What generation_config.json says of how tokens are chosen, under GGUF's keys. Raises ModelFileError."""
    path = folder / "generation_config.json"
    said = read_json_object(path) if path.exists() else {}
    config = Metadata({name: value for name, value in said.items() if value is not None}, path)
    stated_numbers = {KEYS[name]: stated_number(config, name, name) for name in KEYS if name in config}
    return {key: float32(value) if isinstance(value, float) else value for key, value in stated_numbers.items()}
