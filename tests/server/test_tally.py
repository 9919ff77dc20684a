"""Figures that are kept as plain numbers read like those of prometheus_client."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from engine.run.status import StepReport
from server.metrics import Tallies, Tally

BOUNDS = (0, 0.5, 1, 2.5)
VALUES = (0.0, 0.25, 0.5, 0.75, 2.5, 2.6, 100.0)


class One(Collector):
    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily("name", "Text.", labels=("kind",))
        self._tally.add_to(family, "one")
        yield family


def test_a_tally_is_exposed_as_a_histogram_is() -> None:
    disable_created_metrics()  # type: ignore[no-untyped-call]
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    histogram = Histogram("name", "Text.", ("kind",), buckets=BOUNDS, registry=theirs).labels("one")
    tally = Tally(BOUNDS)
    ours.register(One(tally))
    assert generate_latest(ours) == generate_latest(theirs)
    for value in VALUES:
        histogram.observe(value)
        tally.note(value)
    assert generate_latest(ours) == generate_latest(theirs)


def test_the_tokens_of_a_piece_share_its_time_and_the_first_has_its_own() -> None:
    tallies = Tallies()
    tallies.note_tokens(3, 0.2, are_first=True)
    tallies.note_tokens(2, 0.06, are_first=False)
    tallies.note_step(StepReport(0, 3, 3, 0.5), 1000.0)
    samples = {sample.name: sample.value for family in tallies.collect() for sample in family.samples}
    assert samples["octavo_time_to_first_token_seconds_count"] == 1
    assert samples["octavo_inter_token_seconds_count"] == 4
    assert samples["octavo_inter_token_seconds_sum"] == 0.06
    assert samples["octavo_generated_tokens_total"] == 5
    assert samples["octavo_weight_bytes_per_second"] == 2000.0
