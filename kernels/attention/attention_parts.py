"""How the rows of a step are cut into the tiles and parts of attention: see attention.py for what they are.

A tile is split where the step has too few tiles to keep all threads busy. Splitting moves no bit: a split tile's blocks
are merged one by one in the same order. It costs memory for the results of each block, which is bounded; tiles that
find no room there stay whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kernels.attention.attention import rows_per_tile
from kernels.attention.kv_cache import BLOCK_TOKENS
from kernels.attention.tile import results_floats

# The first row, how many rows, the first block that they see, the end of these blocks.
Tile = tuple[int, int, int, int]
# Values of one record of a part, in the order of its fields.
Part = tuple[int, int, int, int, int, int, int]

_TASKS_PER_THREAD = 4  # so that threads that are late do not hold up the others for long
_MIN_BLOCKS = 2  # of a part; a block takes about a microsecond
_MAX_PARTIAL_FLOATS = 16 << 20


def partial_floats(group: int, kv_heads: int, head_dim: int, context: int, rows: int) -> int:
    """Floats for the results of split tiles: enough for `rows` single rows at the context's end, at most 64 MiB."""
    blocks = -(-context // BLOCK_TOKENS)
    return min(rows * blocks * kv_heads * results_floats(group, head_dim), _MAX_PARTIAL_FLOATS)


def max_parts(rows: int, threads: int) -> int:
    """The most parts that a step of so many rows is cut into."""
    return 2 * rows + threads * _TASKS_PER_THREAD


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPlan:
    """Cuts steps for one model, a number of threads, and room for the results of split tiles."""

    group: int
    kv_heads: int
    head_dim: int
    threads: int
    partial_floats: int
    window: int = 0  # positions that a row sees, its own among them; 0: all

    def parts(self, tiles: Sequence[Tile]) -> list[Part]:
        """Cut a step's tiles."""
        parts: list[Part] = []
        work = sum(rows * (end - first) for _, rows, first, end in tiles) * self.kv_heads
        share, split, used = work / (self.threads * _TASKS_PER_THREAD), 0, 0
        for first_row, rows, first, end in tiles:
            blocks = end - first
            size = max(_MIN_BLOCKS, -int(-share // rows)) if self.threads > 1 else blocks
            block_floats = self.kv_heads * results_floats(rows * self.group, self.head_dim)
            if size >= blocks or used + blocks * block_floats > self.partial_floats:
                parts.append((first_row, rows, first, end, 1, 0, 0))
                continue
            starts, partial = range(first, end, size), used - first * block_floats
            parts += [(first_row, rows, at, min(at + size, end), len(starts), split, partial) for at in starts]
            split, used = split + 1, used + blocks * block_floats
        return parts

    def tiles(self, sequences: Sequence[tuple[int, int]]) -> list[Tile]:
        """Cut a step whose rows are those of (first position, number of rows), sequence after sequence."""
        tiles: list[Tile] = []
        row, full = 0, rows_per_tile(self.group)
        for position, count in sequences:
            for start in range(0, count, full):
                rows, at = min(full, count - start), position + start
                unseen = max(at + 1 - self.window, 0) if self.window else 0  # positions
                tiles.append((row + start, rows, unseen // BLOCK_TOKENS, (at + rows - 1) // BLOCK_TOKENS + 1))
            row += count
        return tiles
