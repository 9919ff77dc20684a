"""Runs single ops on NumPy arrays, and makes the inputs that are hard for kernels."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from kernels import gemv
from kernels.activations import Activations
from kernels.cpu import TIER_NUMBERS, supported_tiers
from kernels.jit import address
from kernels.norm import PACK, pack_kernel
from kernels.program import Program
from kernels.quant.weight_types import WEIGHT_TYPES, pack
from kernels.team import Team

Bytes = NDArray[np.uint8]
Float32 = NDArray[np.float32]

QUANTIZED = [name for name, kind in WEIGHT_TYPES.items() if not kind.takes_floats]
TIERS = supported_tiers()  # of this processor; test_avx512_lowering.py proves that tier without one


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


def packed(x: Float32, forms: Collection[str] = ("quads", "fine", "side", "floats")) -> Activations:
    """Pack rows by the plain packing op, in the forms asked for."""
    program, rows = Program(), np.array([len(x)])
    buffers = Activations.allocate(*x.shape)
    program.emit(
        PACK,
        address(pack_kernel()),
        source=x.ctypes.data,
        columns=x.shape[1],
        rows=rows.ctypes.data,
        **{name: address if name in forms else 0 for name, address in buffers.fields().items()},
    )
    run_program(program.finish())
    return buffers


def tiles(rows: int) -> list[tuple[int, int]]:
    """(start, width) of each tile of packed rows: as many of 8 as there are, then at most one of 4, of 2 and of 1."""
    widths = [8] * (rows // 8) + [width for width in (4, 2, 1) if rows % 8 & width]
    return list(zip(np.cumsum([0, *widths])[:-1].tolist(), widths, strict=True))


def unpacked_floats(buffers: Activations, rows: int, columns: int) -> Float32:
    """Read the packed float32 values back, [rows, columns]."""
    x = np.zeros((rows, columns), np.float32)
    for start, width in tiles(rows):
        tile = buffers.floats[start * columns : (start + width) * columns]
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
    groups_per_task: int = 1,
) -> Float32:
    """x times the matrix `raw`, [rows, outputs], added to `added_to` where that is given."""
    return matmul_by(gemv.tile_functions(WEIGHT_TYPES[name], TIER_NUMBERS[tier]), name, raw, x, threads=threads,
                     added_to=added_to, groups_per_task=groups_per_task)  # fmt: skip


def matmul_by(
    tiles: dict[str, int],
    name: str,
    raw: Bytes,
    x: Float32,
    *,
    threads: int = 1,
    added_to: Float32 | None = None,
    groups_per_task: int = 1,
) -> Float32:
    """Like `matmul`, with the tile functions at the given addresses."""
    weights, rows = pack(WEIGHT_TYPES[name], raw), np.array([len(x)])
    groups, blocks, _ = weights.shape
    output = np.full((len(x), groups * 16), np.nan, np.float32)
    if added_to is not None:
        output[:, : len(raw)] = added_to
    activations, program = packed(x), Program()
    program.emit(
        gemv.MATMUL,
        address(gemv.matmul_kernel()),
        weights=weights.ctypes.data,
        groups=groups,
        groups_per_task=groups_per_task,
        blocks=blocks,
        columns=x.shape[1],
        rows=rows.ctypes.data,
        output=output.ctypes.data,
        output_stride=output.shape[1],
        add=int(added_to is not None),
        **activations.fields(),
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
    blocks = random.integers(0, 256, (outputs, columns // 32, kind.file_bytes), np.uint8)
    set_halves(blocks, 0, random.normal(0, 0.01, blocks.shape[:2]))
    if has_minimum(name):
        set_halves(blocks, 2, random.normal(0, 0.1, blocks.shape[:2]))
    return blocks.reshape(outputs, -1)


def has_minimum(name: str) -> bool:
    return name in ("Q4_1", "Q5_1")


def set_halves(blocks: Bytes, at: int, values: NDArray[np.floating]) -> None:
    """Write the float16 that stands `at` bytes into each block."""
    blocks[..., at : at + 2] = values.astype(np.float16)[..., None].view(np.uint8)


def hard_matrix(name: str, columns: int = 96) -> Bytes:
    """Blocks at the ends of what the format can say: 21 outputs, which is no multiple of 16."""
    raw = random_matrix(name, 21, columns, seed=5)
    if WEIGHT_TYPES[name].takes_floats:
        return raw
    blocks = raw.reshape(21, -1, WEIGHT_TYPES[name].file_bytes)
    values_at = 4 if has_minimum(name) else 2
    largest, subnormal = np.finfo(np.float16).max, 2.0**-24
    for row, scale in enumerate((0.0, -0.0, subnormal, -3 * subnormal, largest, -largest, 2.0**-14, 1.0)):
        set_halves(blocks[row], 0, np.full(len(blocks[row]), scale))
    for row, byte in enumerate((0x00, 0xFF, 0x80, 0x7F, 0x0F, 0xF0, 0x81, 0x08), start=6):
        blocks[row, :, values_at:] = byte
    if has_minimum(name):
        for row, minimum in enumerate((0.0, -0.0, subnormal, largest, -largest), start=12):
            set_halves(blocks[row], 2, np.full(len(blocks[row]), minimum))
    return raw


def hard_rows(columns: int = 96) -> Float32:
    """Activations that rounding, scaling and signs could trip over: 15 rows, so that tiles of 8, 4, 2 and 1 occur."""
    random = np.random.default_rng(3)
    x = random.standard_normal((15, columns)).astype(np.float32)
    x[0] = 0
    x[1] = -0.0
    x[2] *= np.float32(1e-40)  # subnormal
    x[3] *= np.float32(1e30)
    x[4, 7], x[4, 40], x[4, 80] = 1e30, 1e15, -50  # outliers beside small values
    x[5, ::2] = -0.0
    x[6] = 127  # a scale of exactly 1
    x[7] = np.resize(np.array([0.5, 1.5, 2.5, -0.5, -1.5, 127], np.float32), columns)  # ties
    x[8] = -127
    x[9] *= np.float32(4e-37)  # a scale near the smallest normal number
    x[10, :32] = 0  # an empty block among others
    x[11] = np.resize(np.array([127, -127], np.float32), columns)
    x[12], x[12, ::32] = 0, -3  # fine blocks, each of a single value
    x[13] = np.round(x[13] * 64)  # whole numbers of steps, where the lower plane is at its ends
    x[13, 31::32] = 16256
    x[14, 64] = 1e3
    return x


def same_bits(a: Float32, b: Float32) -> bool:
    """Tell whether all bits are equal, but for those of a NaN: which NaN an overflow ends in is up to the processor."""
    if a.shape != b.shape or not np.array_equal(np.isnan(a), np.isnan(b)):
        return False
    return np.array_equal(np.nan_to_num(a, posinf=np.inf, neginf=-np.inf).view(np.uint32),
                          np.nan_to_num(b, posinf=np.inf, neginf=-np.inf).view(np.uint32))  # fmt: skip
