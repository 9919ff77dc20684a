"""Writes a model of any format as one GGUF file that llama.cpp reads too."""

import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import OctavoError
from engine.weights.files.gguf_values import MetadataValue
from engine.weights.files.gguf_writer import OutgoingTensor, write_gguf
from engine.weights.files.weights_file import TensorInfo, WeightsFile

_PIECE_BYTES = 8 << 20
# general.file_type of a file whose matrices are mostly of this type (llama.h, llama_ftype).
_FILE_TYPES = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q8_0": 7,
    "Q5_0": 8,
    "Q5_1": 9,
    "Q4_K": 14,
    "Q5_K": 16,
    "Q6_K": 18,
    "BF16": 32,
}
_QUANTIZATION_VERSION = 2  # of the layouts of quantized blocks
_OWN_KEYS = ("split.", "general.alignment", "general.file_type", "general.quantization_version")


def convert(file: WeightsFile, target: Path, threads: int, progress: Callable[[float], None]) -> None:
    """Write `target`, which has its name only once it is whole; `progress` gets the share that is done.

    Raises OctavoError where it is there already or cannot be written.
    """
    if target.exists():
        raise OctavoError(f"{target} is there already; give another name, or remove it first.")
    partial = target.with_name(target.name + ".partial")
    try:
        with partial.open("xb") as output, ThreadPoolExecutor(threads, "octavo-convert") as pool:
            watch = _Watch(sum(tensor.nbytes for tensor in file.tensors.values()), progress)
            write_gguf(output, _metadata(file), _tensors(file, pool, threads, watch))
        partial.rename(target)
    except FileExistsError as error:
        raise OctavoError(f"{partial} is left of another run; remove it first.") from error
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OctavoError(f"{target} cannot be written: {error.strerror}.") from error
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


class _Watch:
    """Counts the bytes written."""

    def __init__(self, total: int, progress: Callable[[float], None]) -> None:
        self._total = max(total, 1)
        self._done = 0
        self._progress = progress

    def count(self, nbytes: int) -> None:
        self._done += nbytes
        self._progress(self._done / self._total)


def _metadata(file: WeightsFile) -> dict[str, MetadataValue]:
    kept = {key: value for key, value in file.metadata.items() if not key.startswith(_OWN_KEYS)}
    kept.setdefault("tokenizer.ggml.model", "none")
    sizes: dict[str, int] = {}
    for tensor in file.tensors.values():
        sizes[tensor.type] = sizes.get(tensor.type, 0) + tensor.nbytes
    most = max(sizes, key=lambda name: sizes[name], default="F32")
    if most in _FILE_TYPES:
        kept["general.file_type"] = _FILE_TYPES[most]
    if any(name.startswith(("Q", "IQ")) for name in sizes):
        kept["general.quantization_version"] = _QUANTIZATION_VERSION
    return kept


def _tensors(
    file: WeightsFile, pool: ThreadPoolExecutor, threads: int, watch: _Watch
) -> Iterator[tuple[OutgoingTensor, Iterator[NDArray[np.uint8]]]]:
    for tensor in file.tensors.values():
        outgoing = OutgoingTensor(tensor.name, tensor.shape, tensor.type)
        yield outgoing, _pieces(file, tensor, pool, threads, watch)


def _pieces(
    file: WeightsFile, tensor: TensorInfo, pool: ThreadPoolExecutor, threads: int, watch: _Watch
) -> Iterator[NDArray[np.uint8]]:
    """The tensor's rows in order, made some pieces ahead by the pool."""
    rows = math.prod(tensor.shape[:-1])
    step = max(1, _PIECE_BYTES // (4 * tensor.shape[-1]))
    ahead: deque[Future[NDArray[np.uint8]]] = deque()
    for first in range(0, rows, step):
        ahead.append(pool.submit(file.rows, tensor.name, first, min(step, rows - first)))
        if len(ahead) > threads:
            yield _taken(ahead, watch)
    while ahead:
        yield _taken(ahead, watch)


def _taken(ahead: "deque[Future[NDArray[np.uint8]]]", watch: _Watch) -> NDArray[np.uint8]:
    piece = ahead.popleft().result()
    watch.count(piece.nbytes)
    return piece
