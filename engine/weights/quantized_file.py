"""A model whose matrices of floats are brought to another type as they are read, shown as if its file held them so."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError, OctavoError
from engine.weights.files.file_view import FileView
from engine.weights.files.gguf_tensors import GGML_TYPES, GgmlType
from engine.weights.files.weights_file import TensorInfo, WeightsFile
from engine.weights.quantize import (
    FLOAT_TYPES,
    as_float32,
    bf16,
    f16,
    f32,
    q4_0,
    q4_1,
    q4_k,
    q5_0,
    q5_1,
    q5_k,
    q6_k,
    q8_0,
)

Float32 = NDArray[np.float32]
_PIECE_BYTES = 8 << 20  # of float32 that are quantized at a time


@dataclass(frozen=True, slots=True)
class _Quantizer:
    """What makes the blocks of a type, and the type that takes its place where rows are no whole number of blocks."""

    quantize: Callable[[Float32], NDArray[np.uint8]]
    instead: str | None


_QUANTIZERS = {
    "F32": _Quantizer(f32, None),
    "F16": _Quantizer(f16, None),
    "BF16": _Quantizer(bf16, None),
    "Q8_0": _Quantizer(q8_0, None),
    "Q4_0": _Quantizer(q4_0, None),
    "Q4_1": _Quantizer(q4_1, None),
    "Q5_0": _Quantizer(q5_0, None),
    "Q5_1": _Quantizer(q5_1, None),
    "Q4_K": _Quantizer(q4_k, "Q5_0"),
    "Q5_K": _Quantizer(q5_k, "Q5_1"),
    "Q6_K": _Quantizer(q6_k, "Q8_0"),
}
QUANTIZABLE = tuple(_QUANTIZERS)
_GGML = {ggml_type.name: ggml_type for ggml_type in GGML_TYPES.values()}
# Matrices by shape that are small and decide much: the routers, and the taps of a convolution.
_KEPT = ("ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "ssm_conv1d.weight")
# The head weighs every token against every other: it has no fewer bits than this.
_HEAD_TYPE = "Q6_K"


def quantized(file: WeightsFile, type_name: str | None) -> WeightsFile:
    """The file with its matrices of floats in this type; the file itself for None. Raises OctavoError."""
    return file if type_name is None else QuantizedFile(file, type_name)


class QuantizedFile(FileView):
    """A WeightsFile; closing it closes the one beneath it."""

    def __init__(self, file: WeightsFile, type_name: str) -> None:
        """Raise OctavoError for a type that nothing can be quantized to."""
        name = type_name.upper()
        if name not in QUANTIZABLE:
            raise OctavoError(f"Weights cannot be quantized to {type_name!r}; give one of {', '.join(QUANTIZABLE)}.")
        head = "output.weight" if "output.weight" in file.tensors else "token_embd.weight"
        tensors = {
            tensor.name: _quantized_info(tensor, _head_type(name) if tensor.name == head else name)
            for tensor in file.tensors.values()
        }
        super().__init__(file, tensors=tensors)

    def raw(self, name: str) -> NDArray[np.uint8]:
        if self.tensors[name] is self._file.tensors[name]:
            return self._file.raw(name)
        return self.rows(name, 0, math.prod(self.tensors[name].shape[:-1]))

    def rows(self, name: str, first: int, count: int) -> NDArray[np.uint8]:
        """uint8 [count, row_bytes]; rows are quantized each time that they are asked for, always to the same bits.

        Raises ModelFileError for values that are infinite or no numbers.
        """
        tensor, stored = self.tensors[name], self._file.tensors[name]
        if tensor is stored:
            return self._file.rows(name, first, count)
        columns = tensor.shape[-1]
        output = np.empty((count, row_bytes(tensor)), np.uint8)
        step = max(1, _PIECE_BYTES // (4 * columns))
        for start in range(0, count, step):
            part = output[start : start + step]
            values = as_float32(stored.type, self._file.rows(name, first + start, len(part)))
            if not np.isfinite(values).all():
                raise ModelFileError(f"{self.path} is broken: {name} holds values that are not numbers.")
            blocks = values.reshape(-1, _GGML[tensor.type].block_elements)
            part[:] = _QUANTIZERS[tensor.type].quantize(blocks).reshape(len(part), -1)
        return output


def row_bytes(tensor: TensorInfo) -> int:
    return tensor.nbytes // math.prod(tensor.shape[:-1])


def _head_type(name: str) -> str:
    return _HEAD_TYPE if _bits(_GGML[name]) < _bits(_GGML[_HEAD_TYPE]) else name


def _bits(kind: GgmlType) -> float:
    """Of a value."""
    return 8 * kind.block_bytes / kind.block_elements


def _quantized_info(tensor: TensorInfo, type_name: str) -> TensorInfo:
    """The tensor's type as it will be: its own where it is no matrix of floats, or where no block fits its rows."""
    kept = len(tensor.shape) < 2 or tensor.type not in FLOAT_TYPES or tensor.name.endswith(_KEPT)
    wanted: str | None = None if kept else type_name
    while wanted is not None and tensor.shape[-1] % _GGML[wanted].block_elements:
        wanted = _QUANTIZERS[wanted].instead
    if wanted is None or wanted == tensor.type:
        return tensor
    elements, kind = math.prod(tensor.shape), _GGML[wanted]
    return replace(tensor, type=wanted, offset=0, nbytes=elements // kind.block_elements * kind.block_bytes)
