"""The layout of attention keys and values in memory: blocks of 64 tokens at absolute positions.

For one layer, float32:

    keys     [block][KV head][head_dim][64 tokens]     so that one load holds 16 keys' values of one dimension
    values   [block][KV head][64 tokens][head_dim]

A sequence's block table lists its blocks: the token at position p lies in block table[p // 64], place p % 64.
"""

import numpy as np

BLOCK_TOKENS = 64

# What one step's rows are, filled by the runner before each run; every array has room for the runner's largest step.
STEP = np.dtype(
    [
        ("rows", "i8"),
        ("logit_rows", "i8"),
        ("tiles", "i8"),
        ("positions", "u8"),  # int64 [rows], absolute position of each row
        ("tables", "u8"),  # uint64 [rows], address of the block table (int32) of each row's sequence
        ("logit_index", "u8"),  # int64 [logit_rows], which rows the head is computed for
        ("tile_rows", "u8"),  # int64 [tiles, 2], first row and number of rows of each attention tile
    ]
)
