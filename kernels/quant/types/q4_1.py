"""Q4_1: 32 values in 20 bytes, value = d * q + m.

    bytes 0..1    d, f16
    bytes 2..3    m, f16
    bytes 4..19   q, 4 bits each: byte i holds value i (low nibble) and value i + 16 (high nibble)

Source of the format: ggml-common.h, block_q4_1.
"""

from kernels.quant.block32 import Block32, register
from kernels.quant.file_layout import Bits, FileLayout, describe, unpack32

Q4_1 = register(Block32(name="Q4_1", number=2, file_bytes=20, bits=4, offset=0, has_minimum=True))
LAYOUT = describe(Q4_1, FileLayout(scale_at=0, minimum_at=2, weights=(Bits(at=4, width=4, planes=2, run=16),)))


def unpack(raw):
    """uint8 [rows, blocks, 20] -> (d, m, both f16 [rows, blocks], q uint8 [rows, blocks, 32])."""
    return unpack32(LAYOUT, raw)
