"""How many rows of prompts go into a step beside those that decode, under two budgets: the knee and the target."""

import math

from engine.api.config import EngineConfig
from engine.run.pace import Chunk, Pace

TILE_ROWS = 16  # of the kernels' matrix tiles: rows beyond whole tiles take longer each
LEAST_CHUNK = 16  # rows that are granted where the target leaves no room
FREE_SHARE = 0.1  # of a decode step: prompt rows that cost no more are always granted
PLANNED_SHARE = 0.7  # of the target: steps take up to a quarter longer than foretold, and machines pause now and then
# The default target is STEPS_A_TARGET * (decode step + fixed cost of prompt rows). A step is planned to take
# PLANNED_SHARE * STEPS_A_TARGET = 4.9 such units: 1 goes to the answers and about 4 go to prompts. So a prompt takes
# about 5/4 of its time alone, and answers keep about 1/5 of their pace.
STEPS_A_TARGET = 7
# The longest default target. It counts where the fixed cost is large: there the answers' pace comes first.
LONG_GAP_SECONDS = 0.25
LONGEST_GAP_STEPS = 11  # decode steps

# Steps without answers. A request that arrives or leaves waits for the end of such a step.
LONGEST_STEP_SECONDS = 0.5
LEAST_ALONE = 64  # rows of such a step, however slow they are
FIRST_ALONE = 128  # rows of the first such step, when nothing was measured
# A large fixed cost, such as that of reading many experts, allows a longer step: FIXED_SHARE of that step is the fixed
# cost. The fixed cost is a small difference of large times. So it counts only after STEPS_TO_BELIEVE steps of each of
# two sizes; until then every other step is planned half as long, to have two sizes.
FIXED_SHARE = 0.05
STEPS_TO_BELIEVE = 6


class ChunkBudget:
    """Deals out the rows of one step after another: `begin` begins a step, then `take` grants rows to each prompt.

    A step without answers lasts at most LONGEST_STEP_SECONDS, or as long as FIXED_SHARE allows: so the engine sees a
    new request, or one that is aborted, soon even where a model is slow.

    Prompts always progress: within every `prefill_interval` steps the first prompt gets LEAST_CHUNK rows, or all rows
    that it needs. Answers always progress: each answer has its row in every step, and except for that least chunk no
    rows are granted that take the step beyond PLANNED_SHARE of the target.
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
        """The most seconds that a step of so many single rows should take; None before anything was measured.

        Measured times only estimate a step, so PLANNED_SHARE of the target is planned.
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
        """Count a step like the last one, in which no prompt waits for rows."""
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
            if self._is_half:
                self._seconds = LONGEST_STEP_SECONDS / 2
                self._least = -(-self._least // 2)
            else:
                self._seconds = LONGEST_STEP_SECONDS

    def take(self, position: int, wanted: int) -> int:
        """How many of the `wanted` rows from a position on a prompt gets."""
        rows = min(wanted, self._rows)
        if not math.isinf(self._seconds):
            rows = min(rows, self._pace.rows_within(self._seconds, position))
        rows = max(self._in_tiles(rows, wanted), min(self._least, wanted), 0)
        if rows >= min(LEAST_CHUNK, wanted):
            self._lean_steps = 0
        self._least = 0
        self._rows = self._rows - rows if rows == wanted else 0  # a prompt that is cut fills the step
        self._planned += rows
        self._seconds -= self._pace.chunk_seconds(Chunk(position, rows))
        return rows

    def _in_tiles(self, rows: int, wanted: int) -> int:
        """Cut a chunk so that the step ends with a whole tile. The end of a prompt, or less than a tile, is not cut."""
        beyond = (self._planned + rows) % TILE_ROWS
        return rows if rows == wanted or rows <= beyond else rows - beyond
