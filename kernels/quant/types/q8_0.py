"""Q8_0: 32 values in 34 bytes, value = d * q, q signed.

    bytes 0..1    d, f16
    bytes 2..33   q, int8 each

In memory q is stored xor 0x80, as q + 128 unsigned, and the block function takes 128 * sum(x) off again.
Source of the format: ggml-common.h, block_q8_0.
"""

from kernels.quant.block32 import Block32, register
from kernels.quant.file_layout import Bits, FileLayout, describe, unpack32

Q8_0 = register(Block32(name="Q8_0", number=5, file_bytes=34, bits=8, offset=128, has_minimum=False))
LAYOUT = describe(Q8_0, FileLayout(scale_at=0, weights=(Bits(at=2, width=8, planes=1, run=32),), weights_xor=128))


def unpack(raw):
    """uint8 [rows, blocks, 34] -> (d f16 [rows, blocks], None, q + 128 uint8 [rows, blocks, 32])."""
    return unpack32(LAYOUT, raw)
