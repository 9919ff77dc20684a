"""IQ4_XS: 256 values in 136 bytes, in 8 sub-blocks of 32; value = d * sc * VALUES[q], sc from -32 to 31.

    bytes 0..1    d, f16
    bytes 2..3    the upper 2 bits of sc + 32, u16 little endian: bits 2j and 2j + 1 belong to sub-block j
    bytes 4..7    the low 4 bits of sc + 32: byte 4 + j holds sub-block 2*j (low nibble) and 2*j + 1 (high nibble)
    bytes 8..135  q, 4 bits each: byte 8 + 16*j + i holds value 32*j + i (low nibble) and 32*j + 16 + i (high nibble)

VALUES is the table of IQ4_NL.
Source of the format: ggml-common.h, block_iq4_xs.
"""

from kernels.quant.block256 import Block256, register
from kernels.quant.file_layout import Bits, FileLayout, describe, unpack256
from kernels.quant.types.iq4_nl import UNSIGNED_VALUES

IQ4_XS = register(
    Block256(
        name="IQ4_XS",
        number=37,
        file_bytes=136,
        bits=4,
        sub_values=32,
        max_scale=32,
        offset=128,
        has_minimum=False,
        table=UNSIGNED_VALUES,
    )
)
LAYOUT = describe(
    IQ4_XS,
    FileLayout(
        scale_at=0,
        scales=(Bits(at=4, width=4, planes=2, run=1, runs=4), Bits(at=2, width=2, planes=4, run=1, runs=2, shift=4)),
        scales_minus=32,
        weights=(Bits(at=8, width=4, planes=2, run=16, runs=8),),
    ),
)


def unpack(raw):
    """uint8 [rows, blocks, 136] -> d f16 [rows, blocks], None, sc int16 [.., 8], None, q uint8 [.., 256], an index."""
    return unpack256(LAYOUT, raw)
