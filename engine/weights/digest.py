"""Digests of a model's bytes: of each tensor by pieces, which threads take as they load them, and of its metadata.

The hash is BLAKE3 (O'Connor, Aumasson, Neves and Wilcox-O'Hearn, 2020). A tensor's digest is the hash of the digests of
its pieces, which are the same whoever reads them.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from engine.weights.files.weights_file import TensorInfo, WeightsFile

# Bytes of rows that one thread takes at a time: they bound the memory that loading needs beside the weights.
PIECE_BYTES = 2 << 20
_ROWS = 16  # a piece has a multiple of so many rows: those of a packed group


class Piece(NamedTuple):
    """Some neighbouring rows of a tensor."""

    first: int
    rows: int


def pieces_of(info: TensorInfo) -> Iterator[Piece]:
    """All rows of a tensor, in order."""
    count = math.prod(info.shape[:-1])
    step = max(1, PIECE_BYTES * count // (info.nbytes * _ROWS)) * _ROWS
    for first in range(0, count, step):
        yield Piece(first, min(step, count - first))


def piece_digest(rows: NDArray[np.uint8]) -> bytes:
    """The digest of a piece's rows, uint8 [rows, row_bytes] as the file has them; other threads run meanwhile."""
    return blake3(np.ascontiguousarray(rows).data.cast("B")).digest()


def joined(digests: list[bytes]) -> bytes:
    """The digest of a tensor, of those of its pieces in order."""
    return blake3(b"".join(digests)).digest()


def submit_digest(file: WeightsFile, info: TensorInfo, threads: ThreadPoolExecutor) -> list[Future[bytes]]:
    """Have threads read a tensor and take the digests of its pieces."""
    return [threads.submit(_read_digest, file, info.name, piece) for piece in pieces_of(info)]


def _read_digest(file: WeightsFile, name: str, piece: Piece) -> bytes:
    return piece_digest(file.rows(name, *piece))


def tensor_digests(file: WeightsFile, threads: int, progress: Callable[[float], None]) -> dict[str, bytes]:
    """The digest of each tensor by name, for which the whole file is read; `progress` gets the share that is done."""
    total, done = max(1, sum(info.nbytes for info in file.tensors.values())), 0
    digests = {}
    with ThreadPoolExecutor(threads, "octavo-digest") as pool:
        for name, info in file.tensors.items():
            digests[name] = joined([piece.result() for piece in submit_digest(file, info, pool)])
            done += info.nbytes
            progress(done / total)
    return digests


def metadata_digest(metadata: Mapping[str, object]) -> bytes:
    """The digest of all keys and values, arrays with all their members."""
    digest = blake3()
    for key in sorted(metadata):
        for part in (key.encode("utf-8", "surrogateescape"), _encoded(metadata[key])):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def _encoded(value: object) -> bytes:
    """A value with its type, so that no other value gives the same bytes."""
    match value:
        case np.ndarray():
            return f"array {value.dtype.str} {value.shape} ".encode() + value.tobytes()
        case str():
            return b"text " + value.encode("utf-8", "surrogateescape")
        case list() if all(isinstance(text, str) for text in value):
            lengths = np.fromiter(map(len, value), np.int64, len(value))
            return b"texts " + lengths.tobytes() + "".join(value).encode("utf-8", "surrogateescape")
        case list():
            return b"list " + b"".join(len(part).to_bytes(8, "little") + part for part in map(_encoded, value))
    return f"{type(value).__name__} {value!r}".encode()
