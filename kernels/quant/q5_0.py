"""Q5_0: 32 values in 22 bytes, value = d * (q - 16).

    bytes 0..1    d, f16
    bytes 2..5    the fifth bits, u32 little endian: bit i belongs to value i
    bytes 6..21   the low 4 bits: byte i holds value i (low nibble) and value i + 16 (high nibble)

Source of the format: ggml-common.h, block_q5_0.
"""

import numpy as np

from kernels.quant.block32 import Block32, register
from kernels.quant.q4_0 import nibbles

Q5_0 = register(Block32(name="Q5_0", number=3, file_bytes=22, bits=5, offset=16, has_minimum=False))


def with_fifth_bits(low, bit_bytes):
    """Join low bits uint8 [..., 32] and fifth bits uint8 [..., 4] (bit i of the 32 belongs to value i)."""
    return low | (np.unpackbits(bit_bytes, axis=-1, bitorder="little") << 4)


def unpack(raw):
    """uint8 [rows, blocks, 22] -> (d f16 [rows, blocks], None, q uint8 [rows, blocks, 32])."""
    scales = np.ascontiguousarray(raw[..., :2]).view(np.float16)[..., 0]
    return scales, None, with_fifth_bits(nibbles(raw[..., 6:]), raw[..., 2:6])
