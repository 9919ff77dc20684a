"""MXFP4: 32 values in 17 bytes, value = 2**(e - 127) * E2M1[q], q a float of 4 bits.

    byte 0        e, the exponent of the block's scale (E8M0: no sign, no fraction)
    bytes 1..16   q, 4 bits each: byte i holds value i (low nibble) and value i + 16 (high nibble)

q has a sign, two exponent bits and one fraction bit; twice its value is a whole number, so the block function looks up
2 * E2M1 + 16 and scales by 2**(e - 128), which is subnormal for e < 2. As in ggml, e = 255 is a number like the others
(the standard has NaN there) and q = 8 is 0, not -0.
Source of the format: ggml-common.h, block_mxfp4 and kvalues_mxfp4; OCP Microscaling Formats (MX) specification 1.0.
"""

from kernels.quant.block32 import Block32, register
from kernels.quant.file_layout import Bits, FileLayout, describe

DOUBLED_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)

MXFP4 = register(
    Block32(
        name="MXFP4",
        number=7,
        file_bytes=17,
        bits=4,
        offset=16,
        has_minimum=False,
        table=tuple(value + 16 for value in DOUBLED_VALUES),
        scale_format="e8m0",
    )
)
LAYOUT = describe(MXFP4, FileLayout(scale_at=0, scale_bytes=1, weights=(Bits(at=1, width=4, planes=2, run=16),)))


def unpack(raw):
    """uint8 [rows, blocks, 17] -> (e uint8 [rows, blocks], None, q uint8 [rows, blocks, 32], an index)."""
    return raw[..., 0], None, LAYOUT.read_weights(raw)
