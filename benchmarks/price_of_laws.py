"""What the laws of determinism cost a matmul: a tile function that keeps law 2 against one that is free of it.

    python -m benchmarks.price_of_laws --types Q4_0,Q4_K,Q6_K,Q8_0 --rows 1,8

Law 2 gives each output one accumulator over ascending blocks, so a block waits for the sum of the one before. The free
variant has two, for even and for odd blocks, and adds them at the end: half the chain, other bits. The paired variant
goes two blocks a turn too, but with one accumulator, and so has the bits of ours. `price` compares those two, which
differ by the law alone; `shape` is what ours, one block a turn, takes beyond the paired one, which no law asks for.

All run over the same weights and activations, turn about, beginning with another one each round. Ratios are taken round
by round, less one; each comes as median and quartiles.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from engine.loading.load_runner import choose_isa
from engine.loading.timed_matmul import TimedMatmul, TimedMatrix
from engine.machine import last_level_cache
from kernels.build.jit import Kernel, address, kernel
from kernels.machine.cpu import usable_cores
from kernels.matmul.activations import TILE_WIDTHS
from kernels.matmul.tiles import MATMUL, accumulate_block, plane_offsets, store_accumulators, zero_accumulators
from kernels.quant.weight_types import WEIGHT_TYPES, QuantizedType
from kernels.run.program import TILE_SIGNATURE, record_at
from kernels.run.team import Team
from kernels.simd.tiers import TIERS_BY_NAME
from kernels.simd.vectors import load_i64

Line = dict[str, object]
_in_place: Callable[..., Any] = numba.njit(inline="always")  # a call would pass sums through memory


def paired_tile(kind: QuantizedType, lanes: int, tier: int, *, free: bool) -> Kernel:
    """Compile kernels.matmul.tiles.block_tile with two blocks a turn; free: each into sums of its own."""
    quads, fine, side = plane_offsets(kind)
    sizes = (kind.number, kind.values, kind.packed_bytes, kind.side_bytes)
    return _paired_tile(*sizes, quads, fine, side, lanes, tier, int(free))


@kernel(TILE_SIGNATURE)
def _paired_tile(
    kind: int,
    values: int,
    packed_bytes: int,
    side_bytes: int,
    quads_at: int,
    fine_at: int,
    side_at: int,
    lanes: int,
    tier: int,
    free: int,
) -> Any:
    @_in_place
    def add(sums: Any, weights: Any, quads: Any, fine: Any, side: Any, block: Any) -> Any:
        return accumulate_block(
            sums,
            weights + np.uintp(block * packed_bytes),
            quads + np.uintp(block * values * lanes),
            fine + np.uintp(block * values * lanes),
            side + np.uintp(block * side_bytes * lanes),
            kind,
            lanes,
            tier,
        )

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
                even = add(even, weights, quads, fine, side, pair * 2)
                if free == 1:
                    odd = add(odd, weights, quads, fine, side, pair * 2 + 1)
                else:
                    even = add(even, weights, quads, fine, side, pair * 2 + 1)
            place = output + np.uintp(group * 64)
            store_accumulators(even, place, stride, np.int64(0), lanes, tier)
            if free == 1:
                store_accumulators(odd, place, stride, np.int64(1), lanes, tier)

    return tile


def paired_tiles(kind: QuantizedType, tier: int, *, free: bool) -> dict[str, int]:
    """A variant of all widths, as fields of the op record."""
    compiled = {f"tile{lanes}": address(paired_tile(kind, lanes, tier, free=free)) for lanes in TILE_WIDTHS}
    return {"tile16": 0, **compiled}


def measure(
    names: Sequence[str], rows: Sequence[int], *, outputs: int, columns: int, repeats: int, megabytes: int | None
) -> Iterator[Line]:
    """Yield a line for each type and number of rows; `columns` hold an even number of blocks.

    megabytes: of weights that a turn goes through; None: so many that they come from memory.
    """
    isa = choose_isa(None)
    tier, team = TIERS_BY_NAME[isa].number, Team(usable_cores())
    weight_bytes = megabytes << 20 if megabytes else max(256 << 20, 4 * last_level_cache())
    try:
        for name in names:
            kind = WEIGHT_TYPES[name]
            if not isinstance(kind, QuantizedType):
                raise SystemExit(f"{name} is no quantized type; --types takes those.")
            matrix = TimedMatrix(kind, outputs, columns, weight_bytes)
            variants = (None, paired_tiles(kind, tier, free=False), paired_tiles(kind, tier, free=True))
            for count in rows:
                works = [TimedMatmul(team, tier, matrix, count, tiles=tiles) for tiles in variants]
                times = in_turn([work.run for work in works], repeats)
                yield {"type": name, "rows": count, "isa": isa, **compare(times)}
    finally:
        team.stop()


def in_turn(runs: Sequence[Callable[[], float]], repeats: int) -> NDArray[np.float64]:
    """Run all in rounds, beginning with another one each round; returns seconds [repeats, runs]."""
    times = np.zeros((repeats, len(runs)))
    for run in runs:
        run()  # warms up
    for turn in range(repeats):
        for step in range(len(runs)):
            which = (turn + step) % len(runs)
            times[turn, which] = runs[which]()
    return times


def compare(times: NDArray[np.float64]) -> Line:
    """Turn seconds [repeats, (ours, paired, free)] into medians and quartiles."""
    ours, paired, free = times.T
    line: Line = {}
    for name, column in (("ours_us", ours), ("paired_us", paired), ("free_us", free)):
        line[name] = float(np.median(column)) * 1e6
    for name, ratios in (("price", paired / free - 1), ("shape", ours / paired - 1)):
        low, median, high = np.quantile(ratios, (0.25, 0.5, 0.75)).tolist()
        line[name], line[f"{name}_quartiles"] = median, (low, high)
    return line


def main() -> None:
    """Print a line of JSON for each measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default="Q4_0,Q4_K,Q5_K,Q6_K,Q8_0")
    parser.add_argument("--rows", default="1,8", help="rows of activations; those beyond 8 go in tiles of 8 and less")
    parser.add_argument("--outputs", type=int, default=8192)
    parser.add_argument("--columns", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--megabytes", type=int, help="of weights a turn; a few stay in the cache [from memory]")
    given = parser.parse_args()
    rows = [int(count) for count in given.rows.split(",")]
    sizes = {"outputs": given.outputs, "columns": given.columns, "repeats": given.repeats}
    for line in measure(given.types.split(","), rows, **sizes, megabytes=given.megabytes):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
