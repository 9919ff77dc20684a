"""Q5_0: 32 values in 22 bytes, value = d * (q - 16).

    bytes 0..1    d, f16
    bytes 2..5    the fifth bits, u32 little endian: bit i belongs to value i
    bytes 6..21   the low 4 bits: byte i holds value i (low nibble) and value i + 16 (high nibble)

Source of the format: ggml-common.h, block_q5_0.
"""

from kernels.quant.block32 import Block32, register
from kernels.quant.file_layout import Bits, FileLayout, describe, unpack32

Q5_0 = register(Block32(name="Q5_0", number=3, file_bytes=22, bits=5, offset=16, has_minimum=False))
LAYOUT = describe(
    Q5_0,
    FileLayout(
        scale_at=0,
        weights=(Bits(at=6, width=4, planes=2, run=16), Bits(at=2, width=1, planes=8, run=1, runs=4, shift=4)),
    ),
)


def unpack(raw):
    """uint8 [rows, blocks, 22] -> (d f16 [rows, blocks], None, q uint8 [rows, blocks, 32])."""
    return unpack32(LAYOUT, raw)
