"""Q4_0: 32 values in 18 bytes, value = d * (q - 8).

    bytes 0..1    d, f16
    bytes 2..17   q, 4 bits each: byte i holds value i (low nibble) and value i + 16 (high nibble)

Source of the format: ggml-common.h, block_q4_0.
"""

import numpy as np

from kernels.quant.block32 import Block32, register

Q4_0 = register(Block32(name="Q4_0", number=1, file_bytes=18, bits=4, offset=8, has_minimum=False))


def nibbles(bytes_of_values):
    """uint8 [..., 16] -> uint8 [..., 32], low nibbles first."""
    return np.concatenate([bytes_of_values & 15, bytes_of_values >> 4], axis=-1)


def unpack(raw):
    """uint8 [rows, blocks, 18] -> (d f16 [rows, blocks], None, q uint8 [rows, blocks, 32])."""
    return np.ascontiguousarray(raw[..., :2]).view(np.float16)[..., 0], None, nibbles(raw[..., 2:])
