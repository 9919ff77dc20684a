"""Bans tokens by a bit mask: x_i = -inf where bit i % 32 of word i // 32 is 0.

Bytes moved for a vocabulary of V: V / 8, and 4 for each banned token.
"""

import numpy as np
from numpy.typing import NDArray

from kernels.build.jit import c_function
from kernels.run.memory import address_of
from kernels.run.program import array_at

WORD = 32  # tokens a word


def ban_unset(logits: NDArray[np.float32], mask: NDArray[np.int32]) -> None:
    """Ban in float32 [V] what int32 [words] does not allow; tokens beyond the mask are banned too."""
    _ban_unset.call(address_of(logits), logits.size, address_of(mask), mask.size)


@c_function("void(uintp, int64, uintp, int64)")
def _ban_unset(logits_at, size, mask_at, words):
    logits, mask = array_at(logits_at, size, np.float32), array_at(mask_at, words, np.int32)
    for word in range(-(-logits.size // WORD)):
        bits = mask[word] if word < mask.size else np.int32(0)
        if bits == -1:
            continue
        part = logits[word * WORD : (word + 1) * WORD]
        if bits == 0:
            part[:] = -np.inf
            continue
        for i in range(part.size):
            if not (bits >> i) & 1:
                part[i] = -np.inf


# What a sampler runs.
KERNELS = (_ban_unset,)
