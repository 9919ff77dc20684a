"""Q6_K: 256 values in 210 bytes, in 16 sub-blocks of 16; value = d * sc * (q - 32), sc a whole int8.

    bytes 0..127    the low 4 bits of q: byte 64*h + i holds value 128*h + i (low nibble) and 128*h + 64 + i (high)
    bytes 128..191  the upper 2 bits of q: bits 2p and 2p + 1 of byte 128 + 32*h + i belong to value 128*h + 32*p + i
    bytes 192..207  sc, int8 each
    bytes 208..209  d, f16

Source of the format: ggml-common.h, block_q6_K.
"""

from kernels.quant.block256 import Block256, register
from kernels.quant.file_layout import Bits, FileLayout, describe, unpack256

Q6_K = register(
    Block256(name="Q6_K", number=36, file_bytes=210, bits=6, sub_values=16, max_scale=128, offset=32, has_minimum=False)
)
LAYOUT = describe(
    Q6_K,
    FileLayout(
        scale_at=208,
        scales=(Bits(at=192, width=8, planes=1, run=16),),
        weights=(
            Bits(at=0, width=4, planes=2, run=64, runs=2),
            Bits(at=128, width=2, planes=4, run=32, runs=2, shift=4),
        ),
    ),
)


def unpack(raw):
    """uint8 [rows, blocks, 210] -> d f16 [rows, blocks], None, sc int16 [.., 16], None, q uint8 [.., 256]."""
    return unpack256(LAYOUT, raw)
