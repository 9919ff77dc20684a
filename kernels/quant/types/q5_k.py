"""Q5_K: 256 values in 176 bytes, in 8 sub-blocks of 32; value = d * sc * q - dmin * m.

    bytes 0..1     d, f16
    bytes 2..3     dmin, f16
    bytes 4..15    sc and m of the 8 sub-blocks, 6 bits each, as in Q4_K
    bytes 16..47   the fifth bits of q: bit p of byte 16 + i belongs to value 32*p + i
    bytes 48..175  the low 4 bits of q: byte 48 + 32*c + i holds value 64*c + i (low nibble) and 64*c + 32 + i (high)

Source of the format: ggml-common.h, block_q5_K.
"""

from kernels.quant.block256 import Block256, register
from kernels.quant.file_layout import Bits, FileLayout, describe, unpack256
from kernels.quant.types.q4_k import MINIMUMS, SCALES

Q5_K = register(
    Block256(name="Q5_K", number=35, file_bytes=176, bits=5, sub_values=32, max_scale=63, offset=0, has_minimum=True)
)
LAYOUT = describe(
    Q5_K,
    FileLayout(
        scale_at=0,
        minimum_at=2,
        scales=SCALES,
        minimums=MINIMUMS,
        weights=(Bits(at=48, width=4, planes=2, run=32, runs=4), Bits(at=16, width=1, planes=8, run=32, shift=4)),
    ),
)


def unpack(raw):
    """uint8 [rows, blocks, 176] -> d and dmin f16 [rows, blocks], sc int16 and m uint8 [.., 8], q uint8 [.., 256]."""
    return unpack256(LAYOUT, raw)
