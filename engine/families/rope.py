"""How a model turns queries and keys by their positions: which frequencies, and how a longer context scales them."""

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError, UnsupportedModelError
from engine.weights.files.metadata import Metadata
from engine.weights.load import WeightLoader
from kernels.attention.angles import rotary_frequencies, rotary_table

DIVISORS = "rope_freqs.weight"
_MOST = 1e15  # of a base or a factor: within it no angle loses all its digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Rotary positions of one kind of layer."""

    base: float
    dimensions: int  # of a head, that turn
    factor: float = 1.0  # linear scaling: positions are divided by it
    yarn: "Yarn | None" = None
    magnitude: float = 1.0  # what cosines and sines are multiplied by

    def table(self, weights: WeightLoader, positions: int) -> NDArray[np.float32]:
        """Cosine and sine of each position and pair: float32 [positions, pairs * 2].

        `rope_freqs.weight` (Llama 3.1 and later) holds a divisor for each pair's frequency; a scaling comes after it.
        """
        pairs = self.dimensions // 2
        frequencies = rotary_frequencies(self.base, pairs)
        if weights.has(DIVISORS):
            frequencies = frequencies / weights.vector(DIVISORS, pairs).astype(np.float64)
        if self.yarn is not None:
            frequencies = self.yarn.scaled(frequencies, self.base)
        return rotary_table(frequencies / self.factor, positions, self.magnitude)


@dataclass(frozen=True, slots=True, kw_only=True)
class Yarn:
    """Scaling that leaves fast frequencies alone and stretches slow ones (Peng et al., YaRN, 2023)."""

    factor: float
    original_context: int  # tokens that the model was first trained for
    beta_fast: float  # pairs that turn more often than this over that context are left alone
    beta_slow: float  # pairs that turn less often are stretched by the whole factor

    @property
    def magnitude(self) -> float:
        """What cosines and sines are multiplied by, so that attention stays as sharp: 0.1 ln(factor) + 1."""
        return 0.1 * _logarithm(self.factor) + 1

    def scaled(self, frequencies: NDArray[np.float64], base: float) -> NDArray[np.float64]:
        """The frequencies of all pairs, float64 [pairs], blended between their own and the stretched ones."""
        pairs = len(frequencies)
        low = max(math.floor(self._pair_of(self.beta_fast, pairs, base)), 0)
        high = min(math.ceil(self._pair_of(self.beta_slow, pairs, base)), 2 * pairs - 1)
        stretch = np.clip((np.arange(pairs) - low) / max(high - low, 0.001), 0, 1)
        return frequencies / self.factor * stretch + frequencies * (1 - stretch)

    def _pair_of(self, turns: float, pairs: int, base: float) -> float:
        """The number of the pair, in between two, that turns so often over the original context."""
        return pairs * _logarithm(self.original_context / (turns * 2 * math.pi)) / _logarithm(base)


def _logarithm(value: float) -> float:
    """The natural logarithm, rounded once: NumPy's and libm's differ from machine to machine."""
    with localcontext() as context:
        context.prec = 40
        return float(Decimal(value).ln())


def read_rope(metadata: Metadata, architecture: str, head_dim: int) -> Rope:
    """Read and check the `rope.*` keys of an architecture, as llama.cpp means them.

    A factor without a type is a linear scaling; files of before have it as `rope.scale_linear`.
    """
    prefix = f"{architecture}.rope"
    kind = metadata.text(f"{prefix}.scaling.type", "linear")
    if kind not in ("none", "linear", "yarn"):
        raise UnsupportedModelError(f"{metadata.path} scales its positions by {kind!r}, which this version cannot do.")
    yarn = _read_yarn(metadata, f"{prefix}.scaling") if kind == "yarn" else None
    attention = metadata.positive(f"{prefix}.scaling.attn_factor", 1.0, maximum=_MOST)
    rope = Rope(
        base=read_base(metadata, f"{prefix}.freq_base", 10000.0),
        dimensions=metadata.integer(f"{prefix}.dimension_count", head_dim, minimum=2),
        factor=_factor(metadata, prefix) if kind == "linear" else 1.0,
        yarn=yarn,
        magnitude=attention if yarn is None else attention * yarn.magnitude,
    )
    if rope.dimensions > head_dim or rope.dimensions % 2:
        raise ModelFileError(f"{metadata.path} is broken: it turns {rope.dimensions} of {head_dim} dimensions.")
    return rope


def read_base(metadata: Metadata, key: str, default: float | None) -> float:
    """The base of the frequencies, which is above 1."""
    base = metadata.positive(key, default, maximum=_MOST)
    if base <= 1:
        raise ModelFileError(f"{metadata.path} is broken: its metadata key {key!r} is {base}, which is no base.")
    return base


def _factor(metadata: Metadata, prefix: str) -> float:
    """Of a linear scaling; 0 says, as in llama.cpp, that there is none."""
    key = f"{prefix}.scaling.factor"
    if key not in metadata:
        key = f"{prefix}.scale_linear"
    return 1.0 if metadata.number(key, 0.0) == 0 else metadata.positive(key, maximum=_MOST)


def _read_yarn(metadata: Metadata, key: str) -> Yarn:
    if metadata.number(f"{key}.yarn_log_multiplier", 0.0) or metadata.number(f"{key}.yarn_ext_factor", 1.0) != 1:
        raise UnsupportedModelError(f"{metadata.path} has a yarn scaling of a kind that this version cannot do.")
    yarn = Yarn(
        factor=metadata.number(f"{key}.factor", maximum=_MOST),
        original_context=metadata.integer(f"{key}.original_context_length", minimum=1),
        beta_fast=metadata.positive(f"{key}.yarn_beta_fast", 32.0, maximum=_MOST),
        beta_slow=metadata.positive(f"{key}.yarn_beta_slow", 1.0, maximum=_MOST),
    )
    if yarn.factor < 1:
        raise ModelFileError(f"{metadata.path} is broken: the factor of its yarn scaling is {yarn.factor}.")
    magnitude = metadata.number(f"{key}.yarn_attn_factor", yarn.magnitude)
    if abs(magnitude - yarn.magnitude) > 1e-5 * yarn.magnitude:
        # To transformers it is the whole magnitude, to llama.cpp nothing or a factor of it.
        raise UnsupportedModelError(
            f"{metadata.path} says {key}.yarn_attn_factor = {magnitude:g}, which programs understand differently;"
            f" this version reads {key}.attn_factor, a factor beside 0.1 ln(factor) + 1."
        )
    return yarn
