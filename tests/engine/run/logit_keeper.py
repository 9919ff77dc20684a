"""A sampler that remembers what it saw, for tests that compare the bits of served logits."""

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from engine.sampling.sampler import Sampler
from engine.sampling.token_chooser import TokenChooser


class LogitKeeper(Sampler):
    """Keeps the bits of all logits that tokens were chosen from."""

    def __init__(self, vocab_size: int) -> None:
        self.seen: defaultdict[TokenChooser, list[bytes]] = defaultdict(list)
        super().__init__(vocab_size)

    def choose(self, logits: NDArray[np.float32], chooser: TokenChooser, likeliest: int = -1) -> int:
        self.seen[chooser].append(logits.tobytes())
        return super().choose(logits, chooser, likeliest)
