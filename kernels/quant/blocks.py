"""What the block functions of all quantized types share: vectors of 16 rows, lanes, and the two planes of fine blocks.

A block of activations has its whole numbers in one plane, `quads`; a fine block has a second, `fine`, for the lower
seven bits of numbers of 15 bits (see activations.py). The second plane counts as one more block of activations, with a
scale 128 times smaller, added right after the first.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.build.toolchain import cgutils, ir, types
from kernels.quant.quads import ROWS
from kernels.simd.halves import half_to_float
from kernels.simd.tiers import TIERS_BY_NUMBER
from kernels.simd.vectors import F32, FLOATS_BY_LANES, I8, I16, I32, I64, call, constant, load, splat, stack_array

LOW_PLANE_FACTOR = 1 / 128
# Bytes of weights that are asked for ahead of their use: the processor looks ahead too little by itself, since every
# line of weights takes some dozens of instructions. Measured on Zen 3: 1024 to 2048 differ little; 4096 is slower by 5
# to 9 % at one row (Q4_0, Q4_K, Q5_K, Q6_K, Q8_0), 512 too (Q4_0, Q4_K); not to ask is slower by 2 to 14 % at eight.
PREFETCH_BYTES = 1536
# Lanes up to which all rows of a block fit in the registers of a processor with 16 of them.
_LANES_OF_WHOLE_BLOCK = 4


@dataclass(frozen=True)
class Lanes:
    """Some lanes of a tile: where their numbers stand.

    quads: address of the plane's int8 [k-quads][width][4]; side: address of the side data [rows][width], 4 bytes each;
    both already moved to the first of `count` lanes.
    """

    quads: Any
    side: Any
    count: int
    width: int

    def quad(self, builder, quad, lane):
        """The address of one k-quad of one lane."""
        return builder.add(self.quads, I64(4 * (quad * self.width + lane)))

    def number(self, builder, row, lane):
        """The address of one number of a lane's side data."""
        return builder.add(self.side, I64(4 * (row * self.width + lane)))

    def f32(self, builder, row, lane, rows):
        """One float of a lane's side data, in `rows` lanes of a vector."""
        return splat(builder, load(builder, self.number(builder, row, lane), F32), rows)


def passes_of(count, parts):
    """Cut the (part, lane) pairs into passes that fit in the registers: a list of lists of parts."""
    if parts == 1 or count <= _LANES_OF_WHOLE_BLOCK:
        return [list(range(parts))]
    return [[part] for part in range(parts)]


def separate_passes(builder):
    """Else LLVM keeps what the first pass has loaded and unpacked for the second, on the stack."""
    builder.fence("seq_cst", targetscope="singlethread")


def emit_planes(builder, accumulators, quads, fine, side, kind_row, width, add_plane):
    """Add the planes of a block to the accumulators (vectors, [part][lane]); returns the new ones.

    add_plane(accumulators, lanes, is_low) emits the addition of one plane for some lanes. Fine blocks are rare.
    """
    result = add_plane(accumulators, Lanes(quads, side, width, width), False)
    kinds_at = builder.add(side, I64(4 * kind_row * width))
    kinds = load(builder, kinds_at, ir.VectorType(I32, width))
    any_fine = call(builder, f"llvm.vector.reduce.or.v{width}i32", I32, [kinds])
    vector, parts = result[0].type, len(result) // width
    stored = [cgutils.alloca_once_value(builder, value) for value in result]
    with builder.if_then(builder.icmp_signed("!=", any_fine, I32(0)), likely=False):
        separate_passes(builder)
        lanes_type = ir.ArrayType(ir.ArrayType(vector, width), parts)
        shelf = stack_array(builder, lanes_type)
        places = [(part, lane) for part in range(parts) for lane in range(width)]
        for (part, lane), value in zip(places, result, strict=True):
            builder.store(value, builder.gep(shelf, [I32(0), I32(part), I32(lane)]))
        with cgutils.for_range(builder, I64(width), intp=I64) as loop:
            offset = builder.mul(loop.index, I64(4))
            kind = load(builder, builder.add(kinds_at, offset), I32)
            with builder.if_then(builder.icmp_signed("!=", kind, I32(0))):
                one_lane = Lanes(builder.add(fine, offset), builder.add(side, offset), 1, width)
                shelves = [builder.gep(shelf, [I32(0), I32(part), loop.index]) for part in range(parts)]
                added = add_plane([builder.load(place) for place in shelves], one_lane, True)
                for value, place in zip(added, shelves, strict=True):
                    builder.store(value, place)
        for (part, lane), place in zip(places, stored, strict=True):
            builder.store(builder.load(builder.gep(shelf, [I32(0), I32(part), I32(lane)])), place)
    return [builder.load(place) for place in stored]


def load_f16(builder, address, part, rows):
    """`rows` of 16 f16 numbers as a float vector."""
    halves = load(builder, builder.add(address, I64(2 * rows * part)), ir.VectorType(I16, rows))
    return half_to_float(builder, halves)


def load_e8m0(builder, address, part, rows):
    """`rows` of 16 exponent bytes e as 2**(e - 128), a subnormal float for e < 2 (OCP Microscaling Formats, E8M0)."""
    ints = ir.VectorType(I32, rows)
    exponents = load(builder, builder.add(address, I64(rows * part)), ir.VectorType(I8, rows))
    exponents = builder.zext(exponents, ints)
    normal = builder.shl(builder.sub(exponents, constant(ints, 1)), constant(ints, 23))
    # 2**(e - 128) for e of 0 and 1: the leading bit moves into the fraction.
    subnormal = builder.shl(constant(ints, 0x00200000), exponents)
    is_small = builder.icmp_unsigned("<", exponents, constant(ints, 2))
    return builder.bitcast(builder.select(is_small, subnormal, normal), ir.VectorType(F32, rows))


def by_groups(values, groups):
    """Pad rows with zeros to whole groups of 16: [rows, ...] -> [groups, 16, ...]."""
    missing = groups * ROWS - len(values)
    if missing:
        values = np.concatenate([values, np.zeros((missing, *values.shape[1:]), values.dtype)])
    return values.reshape(groups, ROWS, *values.shape[1:])


def side_by_side(values, groups):
    """[rows, blocks, ...] -> the bytes of 16 rows, [...][16], in one row a block: uint8 [groups, blocks, bytes]."""
    grouped = by_groups(values, groups)
    last = np.ascontiguousarray(np.moveaxis(grouped, 1, -1))
    return last.view(np.uint8).reshape(groups, values.shape[1], -1)


def accumulator_type(lanes, tier):
    """The tuple of vectors that holds the sums of 16 rows for `lanes` rows of activations."""
    rows = TIERS_BY_NUMBER[tier].dot.rows
    return types.UniTuple(FLOATS_BY_LANES[rows], lanes * (ROWS // rows))
