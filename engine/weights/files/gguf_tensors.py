"""GGUF's list of tensors, and the tensor types of GGML: elements and bytes of a block (ggml.h, ggml-common.h).

A tensor that could not lie in the file as described is refused.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from engine.errors import ModelFileError, UnsupportedModelError
from engine.weights.files.gguf_values import ValueReader
from engine.weights.files.mapped_bytes import checked_extent
from engine.weights.files.weights_file import TensorInfo
from kernels.quant.weight_types import ALL


@dataclass(frozen=True, slots=True)
class GgmlType:
    """A storage format: every row is a whole number of blocks."""

    id: int
    name: str
    block_elements: int
    block_bytes: int


# Types that cannot be executed: a file that has them is read, and refused by their names.
_OTHERS = (
    GgmlType(9, "Q8_1", 32, 36),
    GgmlType(15, "Q8_K", 256, 292),
    GgmlType(16, "IQ2_XXS", 256, 66),
    GgmlType(17, "IQ2_XS", 256, 74),
    GgmlType(18, "IQ3_XXS", 256, 98),
    GgmlType(19, "IQ1_S", 256, 50),
    GgmlType(21, "IQ3_S", 256, 110),
    GgmlType(22, "IQ2_S", 256, 82),
    GgmlType(24, "I8", 1, 1),
    GgmlType(25, "I16", 1, 2),
    GgmlType(26, "I32", 1, 4),
    GgmlType(27, "I64", 1, 8),
    GgmlType(28, "F64", 1, 8),
    GgmlType(29, "IQ1_M", 256, 56),
    GgmlType(34, "TQ1_0", 256, 54),
    GgmlType(35, "TQ2_0", 256, 66),
    GgmlType(40, "NVFP4", 64, 36),
    GgmlType(41, "Q1_0", 128, 18),
)
GGML_TYPES: dict[int, GgmlType] = {
    **{kind.number: GgmlType(kind.number, kind.name, kind.values, kind.file_bytes) for kind in ALL},
    **{ggml_type.id: ggml_type for ggml_type in _OTHERS},
}


MAX_DIMENSIONS = 4
MIN_TENSOR_BYTES = 32  # of a list entry: length of the name, number of dimensions, one dimension, type, offset


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
