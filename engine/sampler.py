"""Chooses the next token of a sequence from its logits, from a random stream that the sequence owns."""

import os

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineFaultError
from engine.request import SamplingParams
from kernels.sampling import argmax, draw, sampling_scratch


class TokenChooser:
    """One request's sampling settings and its MT19937 stream: the t-th draw is for the t-th sampled token."""

    def __init__(self, params: SamplingParams, choice: int = 0) -> None:
        self.params = params
        self._random = random_stream(params.seed, choice)

    def next_uniform(self) -> float:
        """Return the stream's next number in [0, 1)."""
        return self._random.random_sample()


def random_stream(seed: int | None, choice: int) -> np.random.RandomState:
    """Return MT19937 set up (init_by_array) with the seed's 64 bits, two's complement, low half first, and the choice.

    RandomState is frozen by NumPy's compatibility policy (NEP 19): the same seed gives the same numbers in any version.
    """
    bits = int.from_bytes(os.urandom(8), "little") if seed is None else seed & 0xFFFF_FFFF_FFFF_FFFF
    return np.random.RandomState([bits & 0xFFFF_FFFF, bits >> 32, choice])


class Sampler:
    """Owns the scratch memory of sampling, for one thread. Compiles its kernels when made, not in a user's request."""

    def __init__(self, vocab_size: int) -> None:
        self._scratch = sampling_scratch(vocab_size)
        for temperature in (0.0, 1.0):
            self.choose(np.zeros(vocab_size, np.float32), TokenChooser(SamplingParams(temperature=temperature, seed=0)))

    def choose(self, logits: NDArray[np.float32], chooser: TokenChooser) -> int:
        """Return the next token from logits, float32 [vocab_size]; EngineFaultError if they are not numbers."""
        params = chooser.params
        if params.temperature == 0:
            token = argmax(logits, self._scratch)
        else:
            token = draw(
                logits,
                float(params.temperature),  # another type here would compile the kernel again
                params.top_k,
                float(params.min_p),
                float(params.top_p),
                chooser.next_uniform(),
                self._scratch,
            )
        if token < 0:
            raise EngineFaultError("The model gave no usable logits for this request; report it with the model's name.")
        return int(token)
