"""How one GGUF tensor is made of the tensors that a folder stores, row by row, when it is asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engine.weights.files.gguf_values import MetadataValue

Float32 = NDArray[np.float32]
# Numbers of wanted rows -> where they stand among the stored ones.
RowOrder = Callable[[NDArray[np.int64]], NDArray[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A tensor's shape, and what its rows come from; leading axes are flattened into rows, a vector is one row."""

    shape: tuple[int, ...]
    sources: tuple[str, ...]  # stored tensors of one shape and type, whose rows follow one another
    rows: RowOrder | None = None  # None: as they are stored
    columns: NDArray[np.int64] | None = None  # where each wanted column stands
    change: Callable[[Float32], Float32] | None = None  # of the values, which are float32 then
    float32: bool = False  # whether it is widened to float32, as GGUF has all vectors

    @property
    def is_widened(self) -> bool:
        """Whether the tensor is float32, whatever is stored."""
        return self.float32 or self.change is not None

    @property
    def is_stored(self) -> bool:
        """Whether the tensor is a stored one as it lies there."""
        as_it_lies = len(self.sources) == 1 and self.rows is None and self.columns is None
        return as_it_lies and not self.is_widened


@dataclass(slots=True)
class Mapped:
    """A folder's model in GGUF's terms."""

    architecture: str
    metadata: dict[str, MetadataValue]  # under full keys
    recipes: dict[str, Recipe]
    made: dict[str, Float32] = field(default_factory=dict)  # tensors that follow from the configuration alone


def plus_one(values: Float32) -> Float32:
    """Norms that are stored around zero: GGUF holds what is multiplied with."""
    return values + np.float32(1)


def minus_exp(values: Float32) -> Float32:
    """The decay of Gated DeltaNet: GGUF holds -exp(A_log), rounded once from float64."""
    return (-np.exp(values.astype(np.float64))).astype(np.float32)


def interleaved_pairs(head_dim: int) -> RowOrder:
    """Rotary pairs (i, i + d/2) of each head become neighbours (2i, 2i + 1)."""

    def order(rows: NDArray[np.int64]) -> NDArray[np.int64]:
        head, place = np.divmod(rows, head_dim)
        stored: NDArray[np.int64] = head * head_dim + place % 2 * (head_dim // 2) + place // 2
        return stored

    return order


def half_of_each(outputs: int, half: int) -> RowOrder:
    """Of experts that hold 2 * outputs rows each, the first (0) or the second (1) half."""

    def order(rows: NDArray[np.int64]) -> NDArray[np.int64]:
        expert, row = np.divmod(rows, outputs)
        stored: NDArray[np.int64] = (2 * expert + half) * outputs + row
        return stored

    return order


def tiled_heads(key_heads: int, repeats: int, width: int, start: int = 0) -> RowOrder:
    """Value heads grouped by their key head, [key head][repeat], become tiled, [repeat][key head]; from row `start` on.

    Each head has `width` rows.
    """

    def order(rows: NDArray[np.int64]) -> NDArray[np.int64]:
        head, row = np.divmod(np.maximum(rows - start, 0), width)
        repeat, key_head = np.divmod(head, key_heads)
        stored = start + (key_head * repeats + repeat) * width + row
        return np.where(rows < start, rows, stored)

    return order


def rows_by_key_head(key_heads: int, shares: Sequence[int], wanted: Sequence[int]) -> NDArray[np.int64]:
    """Rows of a matrix that has, for each key head, so many rows of one kind after the other: those of some kinds.

    int64 [rows]: where they stand, kind by kind; of each kind, in the order of the heads.
    """
    by_head = np.arange(key_heads * sum(shares)).reshape(key_heads, -1)
    kinds = np.split(by_head, np.cumsum(shares)[:-1], axis=1)
    return np.concatenate([kinds[kind].ravel() for kind in wanted])
