"""Int8 matrix tiles (Intel AMX): the instructions. A process must ask Linux for them first: see machine/cpu.py.

A tile product is C[token][row] += sum over k of A[token][k] * B[k][row] with C int32 [16][16], A int8 [16][K], and B in
the x16 layout, [K / 4][16 rows][4]; K is 64 or 32. All tiles have fixed places in one configuration.
Source: Intel 64 and IA-32 Architectures Software Developer's Manual, chapter 18 (Intel AMX).
"""

from kernels.build.toolchain import cgutils, intrinsic, ir, types
from kernels.simd.vectors import I8, I64, pointer

# Tile registers: two sums, then A and B for products over 64 values and over 32.
SUMS, A64, A32, B64, B32 = (0, 1), 2, 3, 4, 5
TOKENS = 16  # rows of activations of a tile
TILE_BYTES = 1024
_ROW_BYTES = 64
# (register, rows, bytes a row)
_SHAPES = ((0, 16, 64), (1, 16, 64), (A64, 16, 64), (A32, 16, 32), (B64, 16, 64), (B32, 8, 64))


def configuration() -> bytes:
    """The 64 bytes that LDTILECFG loads."""
    config = bytearray(64)
    config[0] = 1  # the palette
    for register, rows, row_bytes in _SHAPES:
        config[16 + 2 * register] = row_bytes
        config[48 + register] = rows
    return bytes(config)


@intrinsic
def configure_tiles(typingctx):
    """Make the tiles of this thread ready; `release_tiles` must follow before the function returns."""

    def codegen(context, builder, signature, arguments):
        constant = ir.Constant(ir.ArrayType(I8, 64), bytearray(configuration()))
        place = cgutils.global_constant(builder, "tile_configuration", constant)
        _call(builder, "ldtilecfg", [builder.bitcast(place, I8.as_pointer())])
        return context.get_dummy_value()

    return types.none(), codegen


@intrinsic
def release_tiles(typingctx):
    """Give the tiles back, so that the system need not save them."""

    def codegen(context, builder, signature, arguments):
        _call(builder, "tilerelease", [])
        return context.get_dummy_value()

    return types.none(), codegen


def zero_tile(builder, tile):
    """Set a tile to zero."""
    _call(builder, "tilezero", [I8(tile)])


def load_tile(builder, tile, address, stride=_ROW_BYTES):
    """Load a tile whose rows stand `stride` bytes apart."""
    _call(builder, "tileloadd64", [I8(tile), pointer(builder, address, I8), I64(stride)])


def store_tile(builder, tile, address):
    """Store a tile, its rows 64 bytes apart."""
    _call(builder, "tilestored64", [I8(tile), pointer(builder, address, I8), I64(_ROW_BYTES)])


def multiply_tiles(builder, sums, a, b):
    """sums += a * b, all signed."""
    _call(builder, "tdpbssd", [I8(sums), I8(a), I8(b)])


def _call(builder, instruction, arguments):
    function_type = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
    name = f"llvm.x86.{instruction}"
    builder.call(cgutils.get_or_insert_function(builder.module, function_type, name), arguments)
