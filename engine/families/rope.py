"""How a model turns queries and keys by their positions: which frequencies, and how a longer context scales them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError, UnsupportedModelError
from engine.families.rotary_angles import rotary_frequencies, rotary_table
from engine.weights.load import WeightLoader
from engine.weights.metadata import Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Rotary positions of one kind of layer."""

    base: float
    dimensions: int  # of a head, that turn
    factor: float = 1.0  # linear scaling: positions are divided by it

    def table(self, weights: WeightLoader, positions: int) -> NDArray[np.float32]:
        """Cosine and sine of each position and pair: float32 [positions, pairs * 2].

        `rope_freqs.weight` (Llama 3.1 and later) holds a divisor for each pair's frequency.
        """
        pairs = self.dimensions // 2
        frequencies = rotary_frequencies(self.base, pairs) / self.factor
        if weights.has("rope_freqs.weight"):
            frequencies = frequencies / weights.vector("rope_freqs.weight", pairs).astype(np.float64)
        return rotary_table(frequencies, positions)


def read_rope(metadata: Metadata, architecture: str, head_dim: int) -> Rope:
    """Read and check the `rope.*` keys of an architecture."""
    rope = Rope(
        base=metadata.number(f"{architecture}.rope.freq_base", 10000.0),
        dimensions=metadata.integer(f"{architecture}.rope.dimension_count", head_dim, minimum=2),
        factor=_factor(metadata, f"{architecture}.rope.scaling"),
    )
    if rope.dimensions > head_dim or rope.dimensions % 2:
        raise ModelFileError(f"{metadata.path} is broken: it turns {rope.dimensions} of {head_dim} dimensions.")
    if rope.base <= 0:
        raise ModelFileError(f"{metadata.path} is broken: its rope base is {rope.base}.")
    return rope


def _factor(metadata: Metadata, key: str) -> float:
    kind = metadata.text(f"{key}.type", "none")
    if kind == "none":
        return 1.0
    if kind != "linear":
        raise UnsupportedModelError(f"{metadata.path} scales its positions by {kind!r}, which this version cannot do.")
    factor = metadata.number(f"{key}.factor", 1.0)
    if factor <= 0:
        raise ModelFileError(f"{metadata.path} is broken: its rope scaling factor is {factor}.")
    return factor
