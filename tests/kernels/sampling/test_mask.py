"""The bit mask against NumPy's own unpacking of bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.sampling.logits import WORD, ban_unset


def masked(logits: np.ndarray, mask: np.ndarray) -> np.ndarray:
    row = logits.copy()
    ban_unset(row, mask)
    return row


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([1, 31, 32, 33, 64, 277, 1000]),
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.01, 0.5, 0.99, 1.0]),
)
def test_exactly_the_unset_bits_are_banned(size: int, seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1, size).astype(np.float32)
    allowed = rng.random(-(-size // WORD) * WORD) < share
    mask = np.packbits(allowed, bitorder="little").view(np.int32)
    expected = np.where(allowed[:size], logits, -np.inf).astype(np.float32)
    assert masked(logits, mask).tobytes() == expected.tobytes()


@pytest.mark.parametrize("words", [0, 1, 2])
def test_tokens_beyond_the_mask_are_banned(words: int) -> None:
    row = masked(np.zeros(70, np.float32), np.full(words, -1, np.int32))
    assert np.isfinite(row).sum() == words * WORD
    assert np.isneginf(row[words * WORD :]).all()


def test_bits_beyond_the_vocabulary_are_passed_over() -> None:
    assert np.isfinite(masked(np.zeros(5, np.float32), np.full(3, -1, np.int32))).all()
