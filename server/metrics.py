"""What /metrics tells: how long requests wait and run, what the lanes do, how fast the weights are read.

All label sets are fixed: what a client sends never becomes a label. Figures that change with each token, step or
response are plain numbers, put into Prometheus' terms when asked: prometheus_client's own counters take a lock and
several calls for each addition, on the cores that compute.
"""

import collections
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from engine.run.status import EngineStatus, StepReport
from engine.version import VERSION
from engine.weights.files.weights_file import WeightBytes
from server.logs import RequestLog
from server.served import ServedModel
from server.serving import OpenRequests

TO_FIRST_TOKEN = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
BETWEEN_TOKENS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2)
ROWS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
RECENT = 0.9  # what a step leaves of the mean before it


class Tally:
    """How many values lie up to each bound, and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def note(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def add_to(self, family: HistogramMetricFamily, label: str | None = None) -> None:
        """Put it into a family of histograms as the one with this label."""
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        buckets = list(zip(names, accumulate(self._counts), strict=True))
        family.add_metric([] if label is None else [label], buckets, self._sum)


class Tallies(Collector):
    """What one server's tokens, steps and responses add up to. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._responses: collections.Counter[tuple[str, int]] = collections.Counter()  # by endpoint and status
        self._generated = 0
        self._to_first, self._between = Tally(TO_FIRST_TOKEN), Tally(BETWEEN_TOKENS)
        self._rows = {kind: Tally(ROWS) for kind in ("prefill", "decode", "draft")}
        self._preempted = self._drafted = self._accepted = 0
        self._seconds = 0.0
        self._bytes_read = 0.0
        self._rate = 0.0  # of reading, in bytes a second

    def note_tokens(self, count: int, seconds: float, *, are_first: bool) -> None:
        """Tokens of an answer came, so long after those before them, or after the request."""
        self._generated += count
        if are_first:
            self._to_first.note(seconds)
            count, seconds = count - 1, 0.0  # what comes with the first token came at once
        if count:
            self._between.note(seconds / count, count)

    def note_response(self, endpoint: str, status: int) -> None:
        """The head of a response is about to be sent."""
        self._responses[endpoint, status] += 1

    def note_step(self, step: StepReport, bytes_read: float) -> None:
        """A step has ended, which read so many bytes of weights."""
        rows = self._rows
        rows["prefill"].note(step.prefill_rows)
        rows["decode"].note(step.decode_rows)
        rows["draft"].note(step.draft_rows)
        self._preempted += step.preempted
        self._drafted += step.draft_rows
        self._accepted += step.accepted_drafts
        self._seconds += step.seconds
        self._bytes_read += bytes_read
        if step.prefill_rows == 0 and step.seconds > 0:
            rate = bytes_read / step.seconds
            self._rate = RECENT * self._rate + (1 - RECENT) * rate if self._rate else rate

    def collect(self) -> Iterator[Metric]:
        """As Collector has it."""
        responses = CounterMetricFamily("octavo_http_responses", "HTTP responses.", labels=("endpoint", "status"))
        for (endpoint, status), count in self._responses.items():
            responses.add_metric([endpoint, str(status)], count)
        yield responses
        to_first = ("octavo_time_to_first_token_seconds", "From a request's admission to its first token.")
        yield _histogram(*to_first, {None: self._to_first})
        yield _histogram("octavo_inter_token_seconds", "Between tokens of an answer.", {None: self._between})
        yield _histogram("octavo_step_rows", "Rows of a step.", self._rows, label="kind")
        yield CounterMetricFamily("octavo_generated_tokens", "Tokens generated.", self._generated)
        preempted = "Sequences that gave their memory to others, to be computed again."
        yield CounterMetricFamily("octavo_preemptions", preempted, self._preempted)
        yield CounterMetricFamily("octavo_drafted_tokens", "Tokens that were guessed and tried.", self._drafted)
        yield CounterMetricFamily("octavo_accepted_tokens", "Guessed tokens that were right.", self._accepted)
        yield CounterMetricFamily("octavo_step_seconds", "Time spent in steps.", self._seconds)
        yield CounterMetricFamily("octavo_weight_bytes_read", "Bytes of weights read by steps.", self._bytes_read)
        yield GaugeMetricFamily(
            "octavo_weight_bytes_per_second",
            "Effective rate at which recent decode steps read the weights.",
            self._rate,
        )


def _histogram(
    name: str, text: str, tallies: Mapping[str, Tally] | Mapping[None, Tally], label: str | None = None
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text, labels=None if label is None else (label,))
    for value, tally in tallies.items():
        tally.add_to(family, value)
    return family


ENDS = frozenset({"stop", "length", "tool_calls", "disconnected", "cancelled", "stalled", "stopped", "error"})
ABORTS = frozenset({"disconnected", "cancelled", "stalled"})
OTHER = "other"

IN_QUEUE = (0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """Hears of requests, answers and steps, and keeps the sums of one server. Belongs to the event loop's thread."""

    def __init__(self, endpoint_of: Callable[[str], str], open_requests: OpenRequests) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._endpoint_of = endpoint_of
        self._weights = WeightBytes(0)
        self._tallies = Tallies()
        self.note_tokens = self._tallies.note_tokens  # as a RequestObserver; itself, for it is called for each token
        self.registry.register(self._tallies)
        self._name_requests()
        Gauge(
            "octavo_requests_open", "Admitted requests whose answer has not ended.", registry=self.registry
        ).set_function(lambda: len(open_requests))
        Info("octavo_build", "The version that runs.", registry=self.registry).info({"version": VERSION})

    def _name_requests(self) -> None:
        registry = self.registry
        self._requests = Counter(
            "octavo_requests", "Admitted requests by how they ended.", ("endpoint", "end"), registry=registry
        )
        self._aborts = Counter(
            "octavo_requests_aborted", "Admitted requests that nobody waited for any more.", registry=registry
        )
        self._prompt_tokens = Counter("octavo_prompt_tokens", "Tokens of admitted prompts.", registry=registry)
        self._cached_tokens = Counter("octavo_cached_tokens", "Prompt tokens taken from the cache.", registry=registry)
        self._queue = Histogram(
            "octavo_queue_seconds", "Waiting for a lane, of finished requests.", buckets=IN_QUEUE, registry=registry
        )

    def watch(self, model: ServedModel) -> None:
        """Begin to report on a model that is ready."""
        self._weights = model.weights
        self.registry.register(LiveState(model))
        model.service.observers.append(self.note_step)

    def note_status(self, path: str, status: int) -> None:
        self._tallies.note_response(self._endpoint_of(path), status)

    def note_end(self, log: RequestLog) -> None:
        end = log.end if log.end in ENDS else OTHER
        self._requests.labels(self._endpoint_of(log.path), end).inc()
        self._aborts.inc(end in ABORTS)
        self._prompt_tokens.inc(log.prompt_tokens)
        self._cached_tokens.inc(log.cached_tokens)
        if log.queue_seconds is not None:
            self._queue.observe(log.queue_seconds)

    def note_step(self, step: StepReport) -> None:
        rows = step.prefill_rows + step.decode_rows + step.draft_rows
        self._tallies.note_step(step, self._weights.of_step(rows))


class LiveState(Collector):
    """What is true at the moment of asking: lanes, queue and blocks."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model

    def collect(self) -> Iterator[Metric]:
        status = self._model.service.status()
        yield GaugeMetricFamily("octavo_lanes", "Sequences that can be decoded at once.", status.lanes)
        yield GaugeMetricFamily("octavo_lanes_busy", "Sequences that hold a lane.", len(status.running))
        yield GaugeMetricFamily("octavo_queue_length", "Sequences that wait for a lane.", status.waiting)
        yield GaugeMetricFamily("octavo_blocks", "Blocks of keys and values.", status.blocks)
        yield GaugeMetricFamily(
            "octavo_blocks_free", "Blocks that hold nothing, or what the cache would give up.", status.free_blocks
        )
        yield GaugeMetricFamily(
            "octavo_blocks_cached", "Blocks that the prefix cache alone holds.", status.cached_blocks
        )
        yield GaugeMetricFamily(
            "octavo_estimated_wait_seconds", "Until a request that came now would get a lane.", status.estimated_wait
        )
        if status.itl_target_seconds is not None:
            yield GaugeMetricFamily(
                "octavo_itl_target_seconds", "What a step beside long prompts should take.", status.itl_target_seconds
            )
        yield from _cache_counters(status)
        facts = GaugeMetricFamily(
            "octavo_model_info", "The model that answers.", labels=("model", "fingerprint", "isa")
        )
        facts.add_metric([self._model.id, self._model.fingerprint, self._model.isa], 1)
        yield facts


def _cache_counters(status: EngineStatus) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "octavo_cache_looked_up_tokens",
        "Prompt tokens for which the prefix cache was asked.",
        status.looked_up_tokens,
    )
    yield CounterMetricFamily("octavo_cache_hit_tokens", "Prompt tokens that the prefix cache had.", status.hit_tokens)
    yield CounterMetricFamily(
        "octavo_cache_evicted_blocks", "Blocks that the prefix cache dropped to make room.", status.evicted_blocks
    )
