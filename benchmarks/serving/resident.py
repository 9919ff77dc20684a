"""A server's resident memory over time, and whether it grows."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from benchmarks.serving.server_process import ServerProcess

Sample = tuple[float, int]  # seconds of time.monotonic, bytes


@asynccontextmanager
async def sampled(server: ServerProcess, every: float) -> AsyncIterator[list[Sample]]:
    """Samples that grow in number while the block runs, with one at each end."""
    samples: list[Sample] = []

    def take() -> None:
        samples.append((time.monotonic(), server.resident_bytes()))

    async def keep_taking() -> None:
        while True:
            await asyncio.sleep(every)
            take()

    take()
    task = asyncio.create_task(keep_taking())
    try:
        yield samples
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        take()


def bytes_per_second(samples: Sequence[Sample]) -> float | None:
    """The slope of the line of least squares; None where all samples are of one moment."""
    if not samples:
        return None
    mean_time = sum(at for at, _ in samples) / len(samples)
    mean_size = sum(size for _, size in samples) / len(samples)
    spread = sum((at - mean_time) ** 2 for at, _ in samples)
    return sum((at - mean_time) * (size - mean_size) for at, size in samples) / spread if spread else None


def later_half(samples: Sequence[Sample]) -> list[Sample]:
    """Those of the second half of the time, when caches and pools are as large as they get."""
    middle = (samples[0][0] + samples[-1][0]) / 2
    return [sample for sample in samples if sample[0] >= middle]
