"""Q3_K: 256 values in 110 bytes, in 16 sub-blocks of 16; value = d * sc * (q - 4), sc from -32 to 31.

    bytes 0..31     the third bits of q: bit p of byte i belongs to value 32*p + i
    bytes 32..95    the low 2 bits of q: bits 2p and 2p + 1 of byte 32 + 32*h + i belong to value 128*h + 32*p + i
    bytes 96..103   the low 4 bits of sc + 32: byte 96 + j holds sub-block j (low nibble) and j + 8 (high nibble)
    bytes 104..107  the upper 2 bits of sc + 32: bits 2p and 2p + 1 of byte 104 + j belong to sub-block 4*p + j
    bytes 108..109  d, f16

Source of the format: ggml-common.h, block_q3_K (which takes 4 off where the third bit is 0: the same value).
"""

from kernels.quant.block256 import Block256, register
from kernels.quant.file_layout import Bits, FileLayout, describe, unpack256

Q3_K = register(
    Block256(name="Q3_K", number=33, file_bytes=110, bits=3, sub_values=16, max_scale=32, offset=4, has_minimum=False)
)
LAYOUT = describe(
    Q3_K,
    FileLayout(
        scale_at=108,
        scales=(Bits(at=96, width=4, planes=2, run=8), Bits(at=104, width=2, planes=4, run=4, shift=4)),
        scales_minus=32,
        weights=(Bits(at=32, width=2, planes=4, run=32, runs=2), Bits(at=0, width=1, planes=8, run=32, shift=2)),
    ),
)


def unpack(raw):
    """uint8 [rows, blocks, 110] -> d f16 [rows, blocks], None, sc int16 [.., 16], None, q uint8 [.., 256]."""
    return unpack256(LAYOUT, raw)
