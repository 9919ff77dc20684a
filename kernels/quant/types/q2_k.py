"""Q2_K: 256 values in 84 bytes, in 16 sub-blocks of 16; value = d * sc * q - dmin * m.

    bytes 0..15   sub-block j: sc (low nibble) and m (high nibble) of byte j
    bytes 16..79  q, 2 bits each: bits 2p and 2p + 1 of byte 16 + 32*h + i hold value 128*h + 32*p + i
    bytes 80..81  d, f16
    bytes 82..83  dmin, f16

Source of the format: ggml-common.h, block_q2_K.
"""

from kernels.quant.block256 import Block256, register
from kernels.quant.file_layout import Bits, FileLayout, describe, unpack256

Q2_K = register(
    Block256(name="Q2_K", number=32, file_bytes=84, bits=2, sub_values=16, max_scale=15, offset=0, has_minimum=True)
)
LAYOUT = describe(
    Q2_K,
    FileLayout(
        scale_at=80,
        minimum_at=82,
        scales=(Bits(at=0, width=4, planes=1, run=16),),
        minimums=(Bits(at=0, width=4, planes=1, run=16, low=4),),
        weights=(Bits(at=16, width=2, planes=4, run=32, runs=2),),
    ),
)


def unpack(raw):
    """uint8 [rows, blocks, 84] -> d and dmin f16 [rows, blocks], sc int16 and m uint8 [.., 16], q uint8 [.., 256]."""
    return unpack256(LAYOUT, raw)
