"""IQ4_NL: 32 values in 18 bytes, value = d * VALUES[q], q an index into a table of 16 numbers.

    bytes 0..1    d, f16
    bytes 2..17   q, 4 bits each: byte i holds value i (low nibble) and value i + 16 (high nibble)

In memory q stays an index; the block function looks up VALUES + 128 and takes 128 * sum(x) off again.
Source of the format: ggml-common.h, block_iq4_nl and kvalues_iq4nl.
"""

from kernels.quant.block32 import Block32, register
from kernels.quant.file_layout import Bits, FileLayout, describe, unpack32

VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
UNSIGNED_VALUES = tuple(value + 128 for value in VALUES)

IQ4_NL = register(
    Block32(name="IQ4_NL", number=6, file_bytes=18, bits=4, offset=128, has_minimum=False, table=UNSIGNED_VALUES)
)
LAYOUT = describe(IQ4_NL, FileLayout(scale_at=0, weights=(Bits(at=2, width=4, planes=2, run=16),)))


def unpack(raw):
    """uint8 [rows, blocks, 18] -> (d f16 [rows, blocks], None, q uint8 [rows, blocks, 32], an index)."""
    return unpack32(LAYOUT, raw)
