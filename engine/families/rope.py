"""How a model turns queries and keys by their positions: which frequencies, and how a longer context scales them."""

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext

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
    yarn: "Yarn | None" = None

    def table(self, weights: WeightLoader, positions: int) -> NDArray[np.float32]:
        """Cosine and sine of each position and pair: float32 [positions, pairs * 2].

        `rope_freqs.weight` (Llama 3.1 and later) holds a divisor for each pair's frequency.
        """
        pairs = self.dimensions // 2
        frequencies = rotary_frequencies(self.base, pairs)
        if self.yarn is not None:
            return rotary_table(self.yarn.scaled(frequencies, self.base), positions, self.yarn.magnitude)
        frequencies = frequencies / self.factor
        if weights.has("rope_freqs.weight"):
            frequencies = frequencies / weights.vector("rope_freqs.weight", pairs).astype(np.float64)
        return rotary_table(frequencies, positions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Yarn:
    """Scaling that leaves fast frequencies alone and stretches slow ones (Peng et al., YaRN, 2023)."""

    factor: float
    original_context: int  # tokens that the model was first trained for
    beta_fast: float  # pairs that turn more often than this over that context are left alone
    beta_slow: float  # pairs that turn less often are stretched by the whole factor
    attention: float  # beside the usual growth of attention with the factor

    @property
    def magnitude(self) -> float:
        """What cosines and sines are multiplied by, so that attention stays as sharp: 0.1 ln(factor) + 1, usually."""
        with localcontext() as context:  # NumPy's and libm's logarithms differ from machine to machine
            context.prec = 40
            return self.attention * (0.1 * float(Decimal(self.factor).ln()) + 1)

    def scaled(self, frequencies: NDArray[np.float64], base: float) -> NDArray[np.float64]:
        """The frequencies of all pairs, float64 [pairs], blended between their own and the stretched ones."""
        pairs = len(frequencies)
        low = max(math.floor(self._pair_of(self.beta_fast, pairs, base)), 0)
        high = min(math.ceil(self._pair_of(self.beta_slow, pairs, base)), 2 * pairs - 1)
        stretch = np.clip((np.arange(pairs) - low) / max(high - low, 0.001), 0, 1)
        return frequencies / self.factor * stretch + frequencies * (1 - stretch)

    def _pair_of(self, turns: float, pairs: int, base: float) -> float:
        """The number of the pair, in between two, that turns so often over the original context."""
        return pairs * math.log(self.original_context / (turns * 2 * math.pi)) / math.log(base)


def read_rope(metadata: Metadata, architecture: str, head_dim: int) -> Rope:
    """Read and check the `rope.*` keys of an architecture."""
    rope = Rope(
        base=metadata.number(f"{architecture}.rope.freq_base", 10000.0),
        dimensions=metadata.integer(f"{architecture}.rope.dimension_count", head_dim, minimum=2),
        factor=_factor(metadata, f"{architecture}.rope.scaling"),
        yarn=_read_yarn(metadata, f"{architecture}.rope.scaling"),
    )
    if rope.dimensions > head_dim or rope.dimensions % 2:
        raise ModelFileError(f"{metadata.path} is broken: it turns {rope.dimensions} of {head_dim} dimensions.")
    if rope.base <= 0 or (rope.yarn is not None and rope.base == 1):
        raise ModelFileError(f"{metadata.path} is broken: its rope base is {rope.base}.")
    return rope


def _factor(metadata: Metadata, key: str) -> float:
    kind = metadata.text(f"{key}.type", "none")
    if kind in ("none", "yarn"):
        return 1.0
    if kind != "linear":
        raise UnsupportedModelError(f"{metadata.path} scales its positions by {kind!r}, which this version cannot do.")
    factor = metadata.number(f"{key}.factor", 1.0)
    if factor <= 0:
        raise ModelFileError(f"{metadata.path} is broken: its rope scaling factor is {factor}.")
    return factor


def _read_yarn(metadata: Metadata, key: str) -> Yarn | None:
    if metadata.text(f"{key}.type", "none") != "yarn":
        return None
    if metadata.number(f"{key}.yarn_log_multiplier", 0.0) or metadata.number(f"{key}.yarn_ext_factor", 1.0) != 1:
        raise UnsupportedModelError(f"{metadata.path} has a yarn scaling of a kind that this version cannot do.")
    attention = metadata.number(f"{key}.attn_factor", 1.0) * metadata.number(f"{key}.yarn_attn_factor", 1.0)
    yarn = Yarn(
        factor=metadata.number(f"{key}.factor"),
        original_context=metadata.integer(f"{key}.original_context_length", minimum=1),
        beta_fast=metadata.number(f"{key}.yarn_beta_fast", 32.0),
        beta_slow=metadata.number(f"{key}.yarn_beta_slow", 1.0),
        attention=attention,
    )
    if yarn.factor < 1 or yarn.beta_fast <= 0 or yarn.beta_slow <= 0 or attention <= 0:
        raise ModelFileError(f"{metadata.path} is broken: the numbers of its yarn scaling make no sense.")
    return yarn
