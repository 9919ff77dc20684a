"""What the engine tells of itself while it runs, whether a step hangs, and how long a lane takes to get free.

Light to import, for a process that only watches.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

LEAST_SECONDS = 5.0  # no step is thought to hang before that
NEWEST_SHARE = 0.2  # of the newest request in the mean time of a lane
MARGIN = 4  # times what a step's rows would take if each were as slow as the slowest so far


class LaneStatus(NamedTuple):
    """One request that holds a lane."""

    id: str
    prompt_tokens: int
    computed_tokens: int  # of prompt and answer, that have been through the model
    generated_tokens: int
    cached_tokens: int = 0  # of the prompt, that it did not have to compute
    preemptions: int = 0  # how often it gave its memory to others
    caller: bytes = b""  # whose request it is


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The engine at one moment."""

    lanes: int
    running: tuple[LaneStatus, ...]
    waiting: int  # requests without a lane
    blocks: int  # of keys and values
    free_blocks: int  # those that the prefix cache would give up for a sequence are among them
    cached_blocks: int = 0  # that the prefix cache holds and no sequence uses
    looked_up_tokens: int = 0  # of prompts, for which the prefix cache was asked since the start
    hit_tokens: int = 0  # those of them that it had
    evicted_blocks: int = 0  # that it has dropped since the start to make room
    estimated_wait: float = 0.0  # seconds until a request that came now would get a lane
    itl_target_seconds: float | None = None  # of a step in which answers run beside prompts; None: not measured yet
    alive: bool = True  # False: its thread has ended by a fault, or hangs, and nothing is answered any more


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step did."""

    prefill_rows: int
    decode_rows: int  # one for each sequence that decodes
    sequences: int
    seconds: float
    draft_rows: int = 0  # of tokens that were guessed
    preempted: int = 0  # sequences that gave their memory to others
    accepted_drafts: int = 0  # rows whose guess was right


class StepWatch:
    """Tells a step that hangs from one that is only long. Times are seconds of one clock.

    The engine's thread writes it; any thread may ask.
    """

    def __init__(self) -> None:
        self._began: float | None = None
        self._rows = 1
        self._limit = math.inf
        self._slowest_row: float | None = None  # until a step has ended, none is judged

    def begin(self, now: float, rows: int) -> None:
        """A step of so many rows begins; of none, there is nothing to watch."""
        if rows == 0:
            return
        self._rows = rows
        if self._slowest_row is not None:
            self._limit = max(LEAST_SECONDS, MARGIN * rows * self._slowest_row)
        self._began = now

    def end(self, now: float) -> None:
        """The step has ended."""
        if self._began is not None:
            self._slowest_row = max(self._slowest_row or 0.0, (now - self._began) / self._rows)
            self._began = None

    def is_stuck(self, now: float) -> bool:
        """Whether the step that runs should have ended long ago."""
        began = self._began
        return began is not None and now - began > self._limit


class LaneTime:
    """How long requests hold their lanes, and so how long the next ones wait: a running mean over those that ended."""

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self._mean_seconds = 0.0

    def note(self, seconds: float) -> None:
        """A request ended that held its lane so long."""
        known = self._mean_seconds
        self._mean_seconds = (1 - NEWEST_SHARE) * known + NEWEST_SHARE * seconds if known else seconds

    def wait(self, before: int) -> float:
        """Seconds until a request gets a lane that `before` others, with a lane or without, are before.

        Lanes become free evenly: one in each mean time divided by the number of lanes. 0 until a request has ended.
        """
        return max(0, before + 1 - self._lanes) * self._mean_seconds / self._lanes
