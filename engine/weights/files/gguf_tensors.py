"""Reads a GGUF file's list of tensors, and refuses any that could not lie in the file as described."""

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from engine.errors import ModelFileError, UnsupportedModelError
from engine.weights.files.extents import checked_extent
from engine.weights.files.ggml_types import GGML_TYPES, GgmlType
from engine.weights.files.gguf_values import ValueReader

MAX_DIMENSIONS = 4
MIN_TENSOR_BYTES = 32  # of a list entry: length of the name, number of dimensions, one dimension, type, offset


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies, and how its bytes are to be read."""

    name: str
    shape: tuple[int, ...]  # in NumPy's order: the last axis is contiguous (GGUF itself lists it first)
    type: str  # "F32", "Q4_1", ...
    offset: int  # bytes from the start of the file
    nbytes: int


def read_tensors(reader: ValueReader, count: int, alignment: int, size: int, path: Path) -> dict[str, TensorInfo]:
    """The `count` tensors listed at the reader's position, in the file's order, all within `size` bytes."""
    entries = [_read_entry(reader, path) for _ in range(count)]
    data_start = -(-reader.position // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for entry in entries:
        if entry.name in tensors:
            raise ModelFileError(f"{path} is broken: it has two tensors called {entry.name!r}.")
        tensors[entry.name] = entry.placed(data_start, alignment, size, path)
    _refuse_overlap(tensors, path)
    return tensors


@dataclass(frozen=True, slots=True)
class _Entry:
    """One line of the list: like TensorInfo, but nothing is known yet about where its bytes are."""

    name: str
    shape: tuple[int, ...]
    type: GgmlType
    relative_offset: int  # from the start of the data

    def placed(self, data_start: int, alignment: int, size: int, path: Path) -> TensorInfo:
        what = f"the tensor {self.name!r}"
        if self.relative_offset % alignment:
            raise ModelFileError(f"{path} is broken: {what} does not start at a multiple of {alignment} bytes.")
        nbytes = math.prod(self.shape) // self.type.block_elements * self.type.block_bytes
        offset = data_start + self.relative_offset
        checked_extent(offset, nbytes, size, what, path)
        return TensorInfo(self.name, self.shape, self.type.name, offset, nbytes)


def _read_entry(reader: ValueReader, path: Path) -> _Entry:
    name = reader.name("the name of a tensor")
    shape = _read_shape(reader, name, path)
    ggml_type = _read_type(reader, name, path)
    if shape[-1] % ggml_type.block_elements:
        raise ModelFileError(
            f"{path} is broken: the rows of the tensor {name!r} have {shape[-1]} elements, which is no multiple"
            f" of the {ggml_type.block_elements} in a block of {ggml_type.name}."
        )
    return _Entry(name, shape, ggml_type, reader.u64(f"the offset of the tensor {name!r}"))


def _read_shape(reader: ValueReader, name: str, path: Path) -> tuple[int, ...]:
    what = f"the shape of the tensor {name!r}"
    dimensions = reader.u32(what)
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise ModelFileError(
            f"{path} is broken: the tensor {name!r} has {dimensions} dimensions, not 1 to {MAX_DIMENSIONS}."
        )
    shape = tuple(reader.u64(what) for _ in range(dimensions))[::-1]
    if 0 in shape:
        raise ModelFileError(f"{path} is broken: the tensor {name!r} has an empty dimension.")
    return shape


def _read_type(reader: ValueReader, name: str, path: Path) -> GgmlType:
    type_id = reader.u32(f"the type of the tensor {name!r}")
    if type_id not in GGML_TYPES:
        raise UnsupportedModelError(
            f"{path} has the tensor {name!r} of type {type_id}, which this version does not know;"
            " use another quantization of the model."
        )
    return GGML_TYPES[type_id]


def _refuse_overlap(tensors: dict[str, TensorInfo], path: Path) -> None:
    in_order = sorted(tensors.values(), key=lambda tensor: tensor.offset)
    for first, second in pairwise(in_order):
        if first.offset + first.nbytes > second.offset:
            raise ModelFileError(f"{path} is broken: the tensors {first.name!r} and {second.name!r} overlap.")


def kind_of(name: str) -> str:
    """A tensor's name without its block."""
    return name.split(".", 2)[-1] if name.startswith("blk.") else name
