"""Tells a step of the engine that hangs from one that is only long."""

import math

LEAST_SECONDS = 5.0  # no step is thought to hang before that
MARGIN = 4  # times what its rows would take if each were as slow as the slowest so far


class StepWatch:
    """Written by the engine's thread, and read by any; times are those of one clock, in seconds."""

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
