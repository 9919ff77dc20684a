"""The layout of attention keys and values in memory: blocks of 64 tokens at absolute positions, in one of three types.

A sequence's block table lists its blocks: the token at position p lies in block table[p // 64], place p % 64. Layers
that see a window of the last positions only share tables of their own, whose entries before the window are never read.
For one layer there are two arrays of bytes, [block][KV head][block bytes], and a block of one head holds

    keys     [4 chunks][head_dim][16 tokens]     so that one load has 16 tokens' values of one dimension
    values   [64 tokens][head_dim]

in elements of the type. `q8_0` has after them float32 scales, [groups of 32 dimensions][64 tokens] (the last group may
hold 16); the value of an element is the int8 times its scale, rounded to float32. Bytes a value: f32 4, f16 2,
q8_0 1.125 (head_dim a multiple of 32).
"""

from dataclasses import dataclass

import numpy as np

BLOCK_TOKENS = 64
CHUNK = 16  # tokens whose keys stand side by side
SCALED = 32  # dimensions that share a scale in q8_0


@dataclass(frozen=True)
class KvType:
    """How keys and values are held."""

    name: str
    number: int  # what kernels are specialised on
    element_bytes: int
    scaled: bool = False  # whether scales follow the elements

    def block_bytes(self, head_dim: int) -> int:
        """Bytes of one block of one head's keys, or of its values."""
        scales = -(-head_dim // SCALED) * 4 if self.scaled else 0
        return BLOCK_TOKENS * (head_dim * self.element_bytes + scales)


F32 = KvType("f32", 0, 4)
F16 = KvType("f16", 1, 2)
Q8_0 = KvType("q8_0", 2, 1, scaled=True)
KV_TYPES = {kind.name: kind for kind in (F16, F32, Q8_0)}
KV_TYPES_BY_NUMBER = {kind.number: kind for kind in KV_TYPES.values()}

# What one step's rows are, filled by the runner before each run; every array has room for the runner's largest step.
STEP = np.dtype(
    [
        ("rows", "i8"),
        ("logit_rows", "i8"),
        ("positions", "u8"),  # int64 [rows], absolute position of each row
        ("logit_index", "u8"),  # int64 [logit_rows], which rows the head is computed for
    ]
)
# The same for the layers of one window, which have block tables of their own.
GROUP = np.dtype(
    [
        ("tables", "u8"),  # uint64 [rows], address of the block table (int32) of each row's sequence
        ("parts", "i8"),
        ("attention_parts", "u8"),  # PART [parts], see attention.py
    ]
)
