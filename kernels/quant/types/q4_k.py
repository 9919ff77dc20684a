"""Q4_K: 256 values in 144 bytes, in 8 sub-blocks of 32; value = d * sc * q - dmin * m.

    bytes 0..1     d, f16
    bytes 2..3     dmin, f16
    bytes 4..15    sc and m of the 8 sub-blocks, 6 bits each, with j from 0 to 3:
                   byte 4 + j   bits 0..5: sc of sub-block j;               bits 6..7: bits 4..5 of sc of j + 4
                   byte 8 + j   bits 0..5: m of sub-block j;                bits 6..7: bits 4..5 of m of j + 4
                   byte 12 + j  bits 0..3: the low 4 bits of sc of j + 4;   bits 4..7: the low 4 bits of m of j + 4
    bytes 16..143  q, 4 bits each: byte 16 + 32*c + i holds value 64*c + i (low nibble) and 64*c + 32 + i (high nibble)

Source of the format: ggml-common.h, block_q4_K.
"""

from kernels.quant.block256 import Block256, register
from kernels.quant.file_layout import Bits, FileLayout, describe, unpack256

SCALES = (
    Bits(at=4, width=6, planes=1, run=4),
    Bits(at=12, width=4, planes=1, run=4, first=4),
    Bits(at=4, width=2, planes=1, run=4, first=4, low=6, shift=4),
)
MINIMUMS = (
    Bits(at=8, width=6, planes=1, run=4),
    Bits(at=12, width=4, planes=1, run=4, first=4, low=4),
    Bits(at=8, width=2, planes=1, run=4, first=4, low=6, shift=4),
)
Q4_K = register(
    Block256(name="Q4_K", number=34, file_bytes=144, bits=4, sub_values=32, max_scale=63, offset=0, has_minimum=True)
)
LAYOUT = describe(
    Q4_K,
    FileLayout(
        scale_at=0,
        minimum_at=2,
        scales=SCALES,
        minimums=MINIMUMS,
        weights=(Bits(at=16, width=4, planes=2, run=32, runs=4),),
    ),
)


def unpack(raw):
    """uint8 [rows, blocks, 144] -> d and dmin f16 [rows, blocks], sc int16 and m uint8 [.., 8], q uint8 [.., 256]."""
    return unpack256(LAYOUT, raw)
