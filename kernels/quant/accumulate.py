"""The block function of any quantized type, as one intrinsic: a block of 16 rows of weights times some lanes."""

from kernels.build.toolchain import cgutils, intrinsic, types
from kernels.quant.block32 import BLOCK32_BY_NUMBER, Block32Emitter
from kernels.quant.block256 import BLOCK256_BY_NUMBER, Block256Emitter
from kernels.quant.blocks import emit_planes
from kernels.simd.tiers import TIERS_BY_NUMBER


def block_type(number):
    """The quantized type of this number."""
    return BLOCK32_BY_NUMBER.get(number) or BLOCK256_BY_NUMBER[number]


def block_emitter(builder, weight_type, make_dot, block):
    """What emits the block function for the packed block at an address."""
    emitter = Block32Emitter if weight_type.number in BLOCK32_BY_NUMBER else Block256Emitter
    return emitter(builder, weight_type, make_dot, block)


@intrinsic(prefer_literal=True)
def accumulate_block(typingctx, accumulators, block, quads, fine, side, kind, lanes, tier):
    """Add one block to the accumulators of `lanes` rows of activations.

    accumulators: tuple of lanes * parts float vectors, [part][lane]; block: address of a packed block;
    quads, fine: addresses of int8 [values / 4][lanes][4]; side: address of the side data [side_rows][lanes].
    """
    weight_type, width = block_type(kind.literal_value), lanes.literal_value
    make_dot = TIERS_BY_NUMBER[tier.literal_value].dot

    def codegen(context, builder, signature, arguments):
        values, block, quads, fine, side = arguments[:5]
        emitter = block_emitter(builder, weight_type, make_dot, block)
        values = cgutils.unpack_tuple(builder, values, accumulators.count)
        sums = emit_planes(builder, values, quads, fine, side, weight_type.kind_row, width, emitter.add_plane)
        return cgutils.pack_array(builder, sums)

    return accumulators(accumulators, types.uintp, types.uintp, types.uintp, types.uintp, kind, lanes, tier), codegen
