"""What /metrics tells: how long requests wait and run, what the lanes do, how fast the weights are read.

All label sets are fixed: what a client sends never becomes a label.
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.run.status import EngineStatus, StepReport
from engine.version import VERSION
from engine.weights.files.weight_bytes import WeightBytes
from server.logs import RequestLog
from server.open_requests import OpenRequests
from server.served import ServedModel
from server.tally import Tallies

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
