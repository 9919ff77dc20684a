"""What the laws of determinism cost a matmul: our tile functions against a variant that is free of law 2.

    python -m benchmarks.price_of_laws --types Q4_0,Q4_K,Q6_K,Q8_0 --rows 1,8

Law 2 gives each output one accumulator over ascending blocks, so a block waits for the sum of the one before. The free
variant has two, for even and for odd blocks, and adds them at the end: the same work, half the chain, other bits. Both
run over the same weights and activations, turn about; the price is the ratio of their medians less one.
"""

import argparse
import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from engine.families.loaded import choose_isa
from engine.machine import last_level_cache
from engine.timed_matmul import TimedMatmul, TimedMatrix
from kernels.activations import TILE_WIDTHS
from kernels.cpu import TIER_NUMBERS, usable_cores
from kernels.jit import address, kernel
from kernels.program import TILE_SIGNATURE, record_at
from kernels.quant.accumulate import accumulate_block
from kernels.quant.weight_types import WEIGHT_TYPES, BlockType
from kernels.simd import load_i64
from kernels.team import Team
from kernels.tiles import MATMUL, plane_offsets, store_accumulators, zero_accumulators

Line = dict[str, object]


def free_tile(kind: BlockType, lanes: int, tier: int) -> Any:
    """Compile the free variant of kernels.tiles.block_tile."""
    offsets = plane_offsets(kind)
    return _free_tile(kind.number, kind.values, kind.packed_bytes, kind.side_bytes, *offsets, lanes, tier)


@functools.cache
def _free_tile(
    kind: int,
    values: int,
    packed_bytes: int,
    side_bytes: int,
    quads_at: int,
    fine_at: int,
    side_at: int,
    lanes: int,
    tier: int,
) -> Any:
    def tile(op: Any, first: Any, last: Any, row: Any) -> None:
        matmul = record_at(op, MATMUL)
        packed = np.uintp(matmul.packed)
        blocks, stride = matmul.blocks, matmul.output_stride * 4
        quads = np.uintp(load_i64(packed + np.uintp(quads_at))) + np.uintp(row * matmul.columns)
        fine = np.uintp(load_i64(packed + np.uintp(fine_at))) + np.uintp(row * matmul.columns)
        side = np.uintp(load_i64(packed + np.uintp(side_at))) + np.uintp(row * blocks * side_bytes)
        output = np.uintp(matmul.output) + np.uintp(row * stride)
        for group in range(first, last):
            weights = np.uintp(matmul.weights) + np.uintp(group * blocks * packed_bytes)
            even, odd = zero_accumulators(lanes, tier), zero_accumulators(lanes, tier)
            for pair in range(blocks // 2):
                block = pair * 2
                even = accumulate_block(
                    even,
                    weights + np.uintp(block * packed_bytes),
                    quads + np.uintp(block * values * lanes),
                    fine + np.uintp(block * values * lanes),
                    side + np.uintp(block * side_bytes * lanes),
                    kind,
                    lanes,
                    tier,
                )
                block += 1
                odd = accumulate_block(
                    odd,
                    weights + np.uintp(block * packed_bytes),
                    quads + np.uintp(block * values * lanes),
                    fine + np.uintp(block * values * lanes),
                    side + np.uintp(block * side_bytes * lanes),
                    kind,
                    lanes,
                    tier,
                )
            place = output + np.uintp(group * 64)
            store_accumulators(even, place, stride, np.int64(0), lanes, tier)
            store_accumulators(odd, place, stride, np.int64(1), lanes, tier)

    return kernel(tile, TILE_SIGNATURE)


def free_tiles(kind: BlockType, tier: int) -> dict[str, int]:
    """The free variant of all widths, as fields of the op record."""
    return {"tile16": 0, **{f"tile{lanes}": address(free_tile(kind, lanes, tier)) for lanes in TILE_WIDTHS}}


def measure(names: Sequence[str], rows: Sequence[int], *, outputs: int, columns: int, repeats: int) -> Iterator[Line]:
    """Yield a line for each type and number of rows; `columns` hold an even number of blocks."""
    isa = choose_isa(None)
    tier, team = TIER_NUMBERS[isa], Team(usable_cores())
    try:
        for name in names:
            kind = WEIGHT_TYPES[name]
            if not isinstance(kind, BlockType):
                raise SystemExit(f"{name} is no quantized type; --types takes those.")
            matrix = TimedMatrix(kind, outputs, columns, max(256 << 20, 4 * last_level_cache()))
            for count in rows:
                works = [
                    TimedMatmul(team, tier, matrix, count, tiles=choice) for choice in (None, free_tiles(kind, tier))
                ]
                rounds = [[work.run() for work in works] for _ in range(repeats + 1)]
                ours, free = np.median(rounds[1:], axis=0).tolist()
                figures = {"ours_us": ours * 1e6, "free_us": free * 1e6, "price": ours / free - 1}
                yield {"type": name, "rows": count, "isa": isa, **figures}
    finally:
        team.stop()


def main() -> None:
    """Print a line of JSON for each measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default="Q4_0,Q4_K,Q5_K,Q6_K,Q8_0")
    parser.add_argument("--rows", default="1,8", help="rows of activations; those beyond 8 go in tiles of 8 and less")
    parser.add_argument("--outputs", type=int, default=8192)
    parser.add_argument("--columns", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    rows = [int(count) for count in given.rows.split(",")]
    sizes = {"outputs": given.outputs, "columns": given.columns, "repeats": given.repeats}
    for line in measure(given.types.split(","), rows, **sizes):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
