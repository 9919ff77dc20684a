"""Q5_1: 32 values in 24 bytes, value = d * q + m.

    bytes 0..1    d, f16
    bytes 2..3    m, f16
    bytes 4..7    the fifth bits, u32 little endian: bit i belongs to value i
    bytes 8..23   the low 4 bits: byte i holds value i (low nibble) and value i + 16 (high nibble)

Source of the format: ggml-common.h, block_q5_1.
"""

import numpy as np

from kernels.quant.block32 import Block32, register
from kernels.quant.q4_0 import nibbles
from kernels.quant.q5_0 import with_fifth_bits

Q5_1 = register(Block32(name="Q5_1", number=4, file_bytes=24, bits=5, offset=0, has_minimum=True))


def unpack(raw):
    """uint8 [rows, blocks, 24] -> (d, m, both f16 [rows, blocks], q uint8 [rows, blocks, 32])."""
    halves = np.ascontiguousarray(raw[..., :4]).view(np.float16)
    return halves[..., 0], halves[..., 1], with_fifth_bits(nibbles(raw[..., 8:]), raw[..., 4:8])
