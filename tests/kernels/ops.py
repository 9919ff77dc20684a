"""Runs single ops on NumPy arrays, and makes the inputs that are hard for kernels."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from kernels.build.jit import address
from kernels.matmul import gemv
from kernels.matmul.activations import BLOCK32, FLOATS, NEVER, Activations, form_of
from kernels.matmul.row_ops import PACK, pack_kernel
from kernels.matmul.tiles import MATMUL
from kernels.quant.block32 import Block32
from kernels.quant.block256 import Block256
from kernels.quant.weight_types import WEIGHT_TYPES, FloatType
from kernels.run.program import Program
from kernels.run.team import Team
from kernels.simd.tiers import TIERS_BY_NAME, supported_tiers

Bytes = NDArray[np.uint8]
Float32 = NDArray[np.float32]

QUANTIZED = [name for name, kind in WEIGHT_TYPES.items() if not kind.takes_floats]
TIERS = supported_tiers()  # of this processor; build/test_cross_compiled.py tests others without one


# Row counts from which tiles of 16 are used, and such a number of rows on both sides of each.
CROSSOVERS = {16: (15, 16, 23), 24: (23, 24, 31), 32: (31, 32, 40), 100: (99, 101), NEVER: (101,)}


def crossover_of(tier: str) -> int:
    """The least crossover with which a tier's tile functions can be run."""
    return 16 if tier == "amx" else NEVER


def float_tiles(name: str, tier: str) -> dict[str, int]:
    """All tile functions of a type of floats: those of 16 rows need no int8 matrix tiles."""
    kind, number = WEIGHT_TYPES[name], TIERS_BY_NAME[tier].number
    assert kind.takes_floats
    return {f"tile{width}": address(gemv.compile_tile(kind, width, number)) for width in (16, 8, 4, 2, 1)}


@contextmanager
def a_team(threads: int) -> Iterator[Team]:
    team = Team(threads)
    try:
        yield team
    finally:
        team.stop()


def run_program(program: Program, threads: int = 1) -> None:
    with a_team(threads) as team:
        team.run(program)


def packed(x: Float32, forms: int = BLOCK32 | FLOATS, crossover: int = NEVER) -> Activations:
    """Pack rows by the plain packing op, in the forms asked for."""
    program, rows = Program(), np.array([len(x)])
    activations = Activations.allocate(x.shape[0], x.shape[1], crossover)
    program.emit(
        PACK,
        address(pack_kernel()),
        source=x.ctypes.data,
        columns=x.shape[1],
        rows=rows.ctypes.data,
        packed=activations.address,
        forms=forms,
    )
    run_program(program.finish())
    return activations


def tiles(rows: int, crossover: int = NEVER) -> list[tuple[int, int]]:
    """(start, width) of each tile of packed rows: as many of the widest as there are, then 8, 4, 2 and 1."""
    widest = 16 if rows >= crossover else 8
    widths = [widest] * (rows // widest) + [width for width in (8, 4, 2, 1) if rows % widest & width]
    return list(zip(np.cumsum([0, *widths])[:-1].tolist(), widths, strict=True))


def unpacked_floats(buffers: Activations, rows: int, columns: int) -> Float32:
    """Read the packed float32 values back, [rows, columns]."""
    x = np.zeros((rows, columns), np.float32)
    for start, width in tiles(rows, int(buffers.record["crossover"][0])):
        tile = buffers.buffers["floats"][start * columns : (start + width) * columns]
        x[start : start + width] = tile.reshape(columns, width).T
    return x


def matmul(
    name: str,
    raw: Bytes,
    x: Float32,
    tier: str,
    *,
    threads: int = 1,
    added_to: Float32 | None = None,
    least_groups: int = 1,
    most_groups: int = 1,
) -> Float32:
    """x times the matrix `raw`, [rows, outputs], added to `added_to` where that is given."""
    return matmul_by(gemv.tile_functions(WEIGHT_TYPES[name], TIERS_BY_NAME[tier].number), name, raw, x, threads=threads,
                     added_to=added_to, least_groups=least_groups, most_groups=most_groups)  # fmt: skip


def wide(name: str, blocks: int) -> int:
    """Columns of `blocks` blocks of a weight type; unquantized ones count as blocks of 32."""
    kind = WEIGHT_TYPES[name]
    return blocks * (kind.values if isinstance(kind, Block32 | Block256) else 32)


def matmul_by(
    tiles: dict[str, int],
    name: str,
    raw: Bytes,
    x: Float32,
    *,
    threads: int = 1,
    added_to: Float32 | None = None,
    least_groups: int = 1,
    most_groups: int = 1,
    crossover: int = NEVER,
) -> Float32:
    """Like `matmul`, with the tile functions at the given addresses."""
    weights, rows = WEIGHT_TYPES[name].pack(raw), np.array([len(x)])
    groups, blocks, _ = weights.shape
    output = np.full((len(x), groups * 16), np.nan, np.float32)
    if added_to is not None:
        output[:, : len(raw)] = added_to
    activations, program = packed(x, form_of(WEIGHT_TYPES[name]), crossover), Program()
    program.emit(
        MATMUL,
        address(gemv.matmul_kernel()),
        weights=weights.ctypes.data,
        groups=groups,
        least_groups=least_groups,
        most_groups=most_groups,
        blocks=blocks,
        columns=x.shape[1],
        rows=rows.ctypes.data,
        output=output.ctypes.data,
        output_stride=output.shape[1],
        add=int(added_to is not None),
        packed=activations.address,
        **tiles,
    )
    run_program(program.finish(), threads)
    return output[:, : len(raw)]


def random_matrix(name: str, outputs: int, columns: int, seed: int = 0) -> Bytes:
    """Random values in a weight type's file format, with scales near 0.01: uint8 [outputs, row bytes]."""
    random, kind = np.random.default_rng(seed), WEIGHT_TYPES[name]
    if kind.takes_floats:
        bits = random.standard_normal((outputs, columns)).astype(np.float32).view(np.uint32)
        if name == "F16":
            return bits.view(np.float32).astype(np.float16).view(np.uint8)
        return bits.view(np.uint8) if name == "F32" else (bits >> 16).astype(np.uint16).view(np.uint8)
    blocks = random.integers(0, 256, (outputs, columns // kind.values, kind.file_bytes), np.uint8)
    if name == "MXFP4":
        blocks[..., 0] = random.integers(118, 124, blocks.shape[:2])  # scales near 0.01
        return blocks.reshape(outputs, -1)
    size = 0.01 if isinstance(kind, Block32) else 0.001  # whole-number scales come on top
    set_halves(blocks, SCALE_AT[name], random.normal(0, size, blocks.shape[:2]))
    if name in MINIMUM_AT:
        set_halves(blocks, MINIMUM_AT[name], random.normal(0, 10 * size, blocks.shape[:2]))
    return blocks.reshape(outputs, -1)


# Where the f16 numbers of a block stand in the file.
SCALE_AT = {name: 0 for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "Q4_K", "Q5_K", "IQ4_XS")}
SCALE_AT |= {"Q2_K": 80, "Q3_K": 108, "Q6_K": 208}
MINIMUM_AT = {"Q4_1": 2, "Q5_1": 2, "Q2_K": 82, "Q4_K": 2, "Q5_K": 2}


def set_halves(blocks: Bytes, at: int, values: NDArray[np.floating]) -> None:
    """Write the float16 that stands `at` bytes into each block."""
    blocks[..., at : at + 2] = values.astype(np.float16)[..., None].view(np.uint8)


def hard_matrix(name: str, blocks: int = 3) -> Bytes:
    """Blocks at the ends of what the format can say: 21 outputs, which is no multiple of 16."""
    raw = random_matrix(name, 21, wide(name, blocks), seed=5)
    kind = WEIGHT_TYPES[name]
    if isinstance(kind, FloatType):
        return raw
    by_block = raw.reshape(21, -1, kind.file_bytes)
    scale_at, minimum_at = SCALE_AT.get(name), MINIMUM_AT.get(name)
    halves = [at + i for at in (scale_at, minimum_at) if at is not None for i in (0, 1)]
    numbers_at = np.setdiff1d(np.arange(kind.file_bytes), halves if scale_at is not None else [0])
    for row, byte in enumerate((0x00, 0xFF, 0x80, 0x7F, 0x0F, 0xF0, 0x81, 0x08), start=6):
        by_block[row][:, numbers_at] = byte
    largest, subnormal = np.finfo(np.float16).max, 2.0**-24
    for row, scale in enumerate((0.0, -0.0, subnormal, -3 * subnormal, largest, -largest, 2.0**-14, 1.0)):
        if scale_at is not None:
            set_halves(by_block[row], scale_at, np.full(len(by_block[row]), scale))
    if name == "MXFP4":
        for row, exponent in enumerate((0, 1, 2, 127, 200, 128)):
            by_block[row, :, 0] = exponent
    if minimum_at is not None:
        for row, minimum in enumerate((0.0, -0.0, subnormal, largest, -largest), start=12):
            set_halves(by_block[row], minimum_at, np.full(len(by_block[row]), minimum))
    return raw


def hard_rows(columns: int = 96) -> Float32:
    """Activations that rounding, scaling and signs could trip over: 15 rows, so that tiles of 8, 4, 2 and 1 occur."""
    random, block = np.random.default_rng(3), columns // 3
    x = random.standard_normal((15, columns)).astype(np.float32)
    x[0] = 0
    x[1] = -0.0
    x[2] *= np.float32(1e-40)  # subnormal
    x[3] *= np.float32(1e30)
    x[4, 7], x[4, block + 8], x[4, 2 * block + 16] = 1e30, 1e15, -50  # outliers beside small values
    x[5, ::2] = -0.0
    x[6] = 127  # a scale of exactly 1
    x[7] = np.resize(np.array([0.5, 1.5, 2.5, -0.5, -1.5, 127], np.float32), columns)  # ties
    x[8] = -127
    x[9] *= np.float32(4e-37)  # a scale near the smallest normal number
    x[10, :block] = 0  # an empty block among others
    x[11] = np.resize(np.array([127, -127], np.float32), columns)
    x[12], x[12, ::block] = 0, -3  # fine blocks, each of a single value
    x[13] = np.round(x[13] * 64)  # whole numbers of steps, where the lower plane is at its ends
    x[13, block - 1 :: block] = 16256
    x[14, 2 * block] = 1e3
    return x


def same_bits(a: Float32, b: Float32) -> bool:
    """Tell whether all bits are equal, but for those of a NaN: which NaN an overflow ends in is up to the processor."""
    if a.shape != b.shape or not np.array_equal(np.isnan(a), np.isnan(b)):
        return False
    return np.array_equal(np.nan_to_num(a, posinf=np.inf, neginf=-np.inf).view(np.uint32),
                          np.nan_to_num(b, posinf=np.inf, neginf=-np.inf).view(np.uint32))  # fmt: skip
