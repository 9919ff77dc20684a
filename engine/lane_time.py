"""How long requests hold their lanes, and so how long those that come now have to wait for one."""

SHARE = 0.2  # of the newest request in the mean


class LaneTime:
    """A running mean over the requests that ended."""

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self._mean_seconds = 0.0

    def note(self, seconds: float) -> None:
        """A request ended that held its lane so long."""
        known = self._mean_seconds
        self._mean_seconds = (1 - SHARE) * known + SHARE * seconds if known else seconds

    def wait(self, before: int) -> float:
        """Seconds until a request gets a lane that `before` others, with a lane or without, are before.

        Lanes become free evenly: one in each mean time divided by the number of lanes. 0 until a request has ended.
        """
        return max(0, before + 1 - self._lanes) * self._mean_seconds / self._lanes
