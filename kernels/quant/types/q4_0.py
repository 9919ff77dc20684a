"""Q4_0: 32 values in 18 bytes, value = d * (q - 8).

    bytes 0..1    d, f16
    bytes 2..17   q, 4 bits each: byte i holds value i (low nibble) and value i + 16 (high nibble)

Source of the format: ggml-common.h, block_q4_0.
"""

from kernels.quant.block32 import Block32, register
from kernels.quant.file_layout import Bits, FileLayout, describe, unpack32

Q4_0 = register(Block32(name="Q4_0", number=1, file_bytes=18, bits=4, offset=8, has_minimum=False))
LAYOUT = describe(Q4_0, FileLayout(scale_at=0, weights=(Bits(at=2, width=4, planes=2, run=16),)))


def unpack(raw):
    """uint8 [rows, blocks, 18] -> (d f16 [rows, blocks], None, q uint8 [rows, blocks, 32])."""
    return unpack32(LAYOUT, raw)
