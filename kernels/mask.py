"""Bans tokens by a bit mask: x_i = -inf where bit i % 32 of word i // 32 is 0.

Bytes moved for a vocabulary of V: V / 8, and 4 for each banned token.
"""

from typing import Any

import numpy as np

from kernels.jit import njit_kernel

WORD = 32  # tokens a word


@njit_kernel
def ban_unset(logits: Any, mask: Any) -> None:
    """Ban in float32 [V] what int32 [words] does not allow; tokens beyond the mask are banned too."""
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
