"""Q4_1: 32 values in 20 bytes, value = d * q + m.

    bytes 0..1    d, f16
    bytes 2..3    m, f16
    bytes 4..19   q, 4 bits each: byte i holds value i (low nibble) and value i + 16 (high nibble)

Source of the format: ggml-common.h, block_q4_1.
"""

import numpy as np

from kernels.quant.block32 import Block32, register
from kernels.quant.q4_0 import nibbles

Q4_1 = register(Block32(name="Q4_1", number=2, file_bytes=20, bits=4, offset=0, has_minimum=True))


def unpack(raw):
    """uint8 [rows, blocks, 20] -> (d, m, both f16 [rows, blocks], q uint8 [rows, blocks, 32])."""
    halves = np.ascontiguousarray(raw[..., :4]).view(np.float16)
    return halves[..., 0], halves[..., 1], nibbles(raw[..., 4:])
