"""Q5_1: 32 values in 24 bytes, value = d * q + m.

    bytes 0..1    d, f16
    bytes 2..3    m, f16
    bytes 4..7    the fifth bits, u32 little endian: bit i belongs to value i
    bytes 8..23   the low 4 bits: byte i holds value i (low nibble) and value i + 16 (high nibble)

Source of the format: ggml-common.h, block_q5_1.
"""

from kernels.quant.block32 import Block32, register
from kernels.quant.file_layout import Bits, FileLayout, describe, unpack32

Q5_1 = register(Block32(name="Q5_1", number=4, file_bytes=24, bits=5, offset=0, has_minimum=True))
LAYOUT = describe(
    Q5_1,
    FileLayout(
        scale_at=0,
        minimum_at=2,
        weights=(Bits(at=8, width=4, planes=2, run=16), Bits(at=4, width=1, planes=8, run=1, runs=4, shift=4)),
    ),
)


def unpack(raw):
    """uint8 [rows, blocks, 24] -> (d, m, both f16 [rows, blocks], q uint8 [rows, blocks, 32])."""
    return unpack32(LAYOUT, raw)
