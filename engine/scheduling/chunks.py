"""How many rows of prompts go into a step beside those that decode, under two budgets: the knee and the target."""

import math

from engine.config import EngineConfig
from engine.run.pace import Chunk, Pace

TILE_ROWS = 16  # of the kernels' matrix tiles: rows beyond whole tiles take longer each
LEAST_CHUNK = 16  # rows that are granted where the target leaves no room
FREE_SHARE = 0.1  # of a decode step: what costs no more is as good as free
# Planned of the target: a step takes up to a quarter longer than foretold, and now and then a machine stands still.
PLANNED_SHARE = 0.7
# The default target, in decode steps with the fixed cost of prompt rows. As planned, 4/5 of a step go to prompts, which
# so take at most 5/4 of what they take alone, but for whole tiles, while answers go on at a fifth of their pace.
STEPS_A_TARGET = 7
# Where the fixed cost is so large that this makes a long gap, the answers' pace comes first.
LONG_GAP_SECONDS = 0.25
LONGEST_GAP_STEPS = 11  # decode steps

# Where no answer runs, whoever comes or goes waits for the end of the step.
LONGEST_STEP_SECONDS = 0.5
LEAST_ALONE = 64  # rows of such a step, however slow they are
FIRST_ALONE = 128  # rows of the first of all
# Where each step has a large fixed cost, such as reading many experts, it may be this share of a longer one. It is a
# small difference of large times, believed only once two sizes were measured so often; until then every other is half.
FIXED_SHARE = 0.05
STEPS_TO_BELIEVE = 6


class ChunkBudget:
    """Deals out one step's rows after another; told of each step by `begin`, then asked by `take` for each prompt.

    A step without answers is no longer than LONGEST_STEP_SECONDS, or than FIXED_SHARE makes it, so that a newcomer, or
    one who leaves, is seen soon also where a model is slow.

    Prompts always progress: within every `prefill_interval` steps the first of them gets LEAST_CHUNK rows, or all that
    it needs. Answers always progress: each has its row in every step, and no other chunk takes it beyond PLANNED_SHARE
    of the target.
    """

    def __init__(self, config: EngineConfig, pace: Pace) -> None:
        self._config = config
        self._pace = pace
        self._lean_steps = 0  # in a row that granted no prompt LEAST_CHUNK rows
        self._rows = 0
        self._planned = 0  # rows of the step so far
        self._seconds = math.inf
        self._least = 0
        self._is_half = False  # the last step alone, if fixed costs are not known
        self.last_target: float | None = config.itl_target_seconds  # of the last step in which answers ran

    def target(self, single_rows: int) -> float | None:
        """The seconds that a step of so many single rows is to take at most; None before anything was measured.

        No clock foretells a step: what is planned is PLANNED_SHARE of this.
        """
        if self._config.itl_target_seconds is not None:
            return self._config.itl_target_seconds
        decode = self._pace.decode_seconds(single_rows)
        if decode is None:
            return None
        longest = max(LONG_GAP_SECONDS, LONGEST_GAP_STEPS * decode)
        return min(STEPS_A_TARGET * (decode + self._pace.fixed_seconds), longest)

    def begin(self, single_rows: int) -> None:
        """Begin a step in which so many sequences have one row each."""
        self._planned, self._least = single_rows, 0
        self._rows, self._seconds = self._config.prefill_rows, math.inf
        if single_rows == 0:
            self._begin_alone()
            return
        self._lean_steps += 1
        if self._lean_steps >= self._config.prefill_interval:
            self._least = LEAST_CHUNK
        to_knee = self._config.knee_rows - single_rows
        decode, target = self._pace.decode_seconds(single_rows), self.target(single_rows)
        self.last_target = target
        if decode is None or target is None or not self._pace.knows_chunks:
            self._rows = to_knee
            return
        room = PLANNED_SHARE * target - decode - self._pace.fixed_seconds
        free = FREE_SHARE * decode - self._pace.fixed_seconds
        if room < free:
            self._rows = min(self._rows, to_knee)
        self._seconds = max(room, free)

    def pass_over(self) -> None:
        """Another step like the last one, in which no prompt waits for rows."""
        self._lean_steps += 1

    def _begin_alone(self) -> None:
        self._least = min(LEAST_ALONE, self._rows)
        if not self._pace.knows_chunks:
            self._rows = min(self._rows, FIRST_ALONE)
        elif self._pace.measured_twice(STEPS_TO_BELIEVE):
            fixed = self._pace.fixed_seconds
            self._seconds = max(LONGEST_STEP_SECONDS, fixed / FIXED_SHARE) - fixed
        else:
            self._is_half = not self._is_half
            self._seconds = LONGEST_STEP_SECONDS / (1 + self._is_half)
            self._least = -(-self._least // (1 + self._is_half))

    def take(self, position: int, wanted: int) -> int:
        """How many of the `wanted` rows from a position on a prompt gets."""
        rows = min(wanted, self._rows)
        if not math.isinf(self._seconds):
            rows = min(rows, self._pace.rows_within(self._seconds, position))
        rows = max(self._in_tiles(rows, wanted), min(self._least, wanted), 0)
        if rows >= min(LEAST_CHUNK, wanted):
            self._lean_steps = 0
        self._least = 0
        self._rows = self._rows - rows if rows == wanted else 0  # after a prompt that is cut the step is full
        self._planned += rows
        self._seconds -= self._pace.chunk_seconds(Chunk(position, rows))
        return rows

    def _in_tiles(self, rows: int, wanted: int) -> int:
        """Cut a chunk so that the step ends with a whole tile, unless the prompt ends with it or no tile is full."""
        beyond = (self._planned + rows) % TILE_ROWS
        return rows if rows == wanted or rows <= beyond else rows - beyond
